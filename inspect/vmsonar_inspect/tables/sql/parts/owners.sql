-- The owner of a job's container.
LEFT JOIN latest_container_info AS o ON n.archive = o.archive AND n.container_id = o.container_id
