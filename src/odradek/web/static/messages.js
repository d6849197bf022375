// Goes on with a search by itself: gets the next slice, adds what it found, shows how far it is.
// Without this file the link "Search on" shows the next slice as a page of its own.

const KEPT = 1000; // messages in the document; the oldest of a tail are removed
let paused = false;

const next = async () => {
  const link = document.getElementById("continue");
  if (!link || paused) return;
  const tail = link.dataset.tail === "yes";
  let page;
  try {
    const response = await fetch(link.href, { headers: { accept: "text/html" } });
    page = new DOMParser().parseFromString(await response.text(), "text/html");
  } catch {
    complain("the page does not answer");
    return;
  }
  if (paused) return; // the same slice is read again later
  const found = document.getElementById("found");
  const progress = page.getElementById("progress");
  if (!progress) {
    // Too many searches, or the cluster does not answer: the cursor is kept, and "Go on" tries again.
    complain(page.querySelector("main")?.textContent.trim() ?? "the page does not answer");
    return;
  }
  // A reload goes on from here, too.
  history.replaceState(null, "", link.href);
  const rows = [...page.querySelectorAll("#found > li")];
  if (tail) found.prepend(...rows.reverse());
  else found.append(...rows);
  while (tail && found.children.length > KEPT) found.lastElementChild.remove();
  if (rows.length) document.getElementById("nothing")?.remove();
  document.getElementById("progress").replaceWith(progress);
  const more = progress.querySelector("#continue");
  // A step that is full waits for the reader; one that only took its time goes on.
  if (more && (tail || more.dataset.ended !== "found")) begin();
};

const complain = (text) => {
  const problem = document.createElement("p");
  problem.className = "problem";
  problem.textContent = text;
  document.getElementById("progress").append(problem);
  pause(true);
};

const pause = (value) => {
  paused = value;
  const button = document.getElementById("pause");
  if (button) button.textContent = paused ? "Go on" : "Pause";
  if (!paused) next();
};

const begin = () => {
  const button = document.getElementById("pause");
  if (button) button.hidden = false;
  next();
};

document.addEventListener("click", (event) => {
  if (event.target.closest("#pause")) pause(!paused);
  if (event.target.closest("#continue")) {
    event.preventDefault();
    paused = false;
    begin();
  }
});

const first = document.getElementById("continue");
if (first && (first.dataset.tail === "yes" || first.dataset.ended !== "found")) begin();
