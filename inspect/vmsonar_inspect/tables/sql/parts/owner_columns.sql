-- Whose a job is: what runs in a container is its owner's, where that is known.
    CASE WHEN o.user_name IS NULL THEN n.user_id ELSE o.user_id END AS user_id, -- uid of the owner
    COALESCE(o.user_name, n.user_name) AS user_name, -- owner; in a container the container's
