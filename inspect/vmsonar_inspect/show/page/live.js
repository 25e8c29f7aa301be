// A page that a server sends looks whether there is a newer one, and takes its place; the address keeps what is shown.

const LOOK_AGAIN = 10_000;

const isBusy = () => document.activeElement?.matches("input, select, canvas") || document.querySelector(".drag:not([hidden])");

let shownTag = null;
const lookAgain = async () => {
  try {
    const answer = await fetch(location.origin + location.pathname + location.search, { cache: "no-cache" });
    const tag = answer.headers.get("ETag");
    if (answer.ok && shownTag && tag !== shownTag && !isBusy()) location.reload();
    else if (answer.ok) shownTag ??= tag;
    document.documentElement.dataset.live = String(answer.ok);
  } catch {
    document.documentElement.dataset.live = "false"; // the server is away: what is shown stays
  }
  setTimeout(lookAgain, LOOK_AGAIN);
};
lookAgain();
