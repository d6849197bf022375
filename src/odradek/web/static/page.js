// Keeps a page up to date, and what a page without scripts cannot do: copying, keys, drawing.
// Everything that is shown is rendered by the server; this file only puts it into the document.

const store = (name, value) => {
  try {
    if (value === undefined) return sessionStorage.getItem(name);
    sessionStorage.setItem(name, value);
  } catch { /* a browser may forbid it: then nothing is kept */ }
  return null;
};

// ------------------------------------------------------------------------------- live content

const main = document.getElementById("content");
const link = document.getElementById("link");

// What somebody is typing stays as it is.
const isTyped = (node) =>
  node === document.activeElement && node.matches("input:not([type=hidden]), textarea, select");

// The answer to a form stays, too: the server does not know it.
const isAnswer = (node) =>
  node.nodeName === "OUTPUT" && node.textContent !== "" && node.closest("form[data-write]") !== null;

// `isLeft` says which elements stay as they are.
const morph = (node, html, style, isLeft = () => false) =>
  Idiomorph.morph(node, html, {
    morphStyle: style,
    callbacks: {
      beforeNodeMorphed: (old, fresh) => !isTyped(old) && !isAnswer(old) && !isLeft(old, fresh),
      // The user has opened it, and the server does not know that.
      beforeAttributeUpdated: (name, old) => !(name === "open" && old.nodeName === "DETAILS"),
    },
  });

const say = (text) => {
  link.hidden = !text;
  link.textContent = text;
};

const AGAIN_MS = 1000;
const LOST = "connection lost, trying again";
let reading; // what ends the stream that is read now
const relisten = () => {
  if (main.dataset.live === undefined) return;
  reading?.abort();
  parts.clear();
  due.clear();
  listen();
};

let parts = new Map(); // the parts that change, as they were received last
const due = new Set(); // those that the document does not show yet
const PART = /<!--live ([^ >]+)-->([^]*?)<!--\/live-->/g;
const FRAME_MS = 4; // of each frame, for changing the document; what is scrolled stays fluent

const isInView = (node) => {
  const { top, bottom } = node.getBoundingClientRect();
  return top < innerHeight && bottom > 0;
};

// Shows changed parts, those in view first, and goes on in the next frame when the time is over.
const catchUp = (now) => {
  const nodes = [...due].map((name) => [name, document.getElementById(name)]);
  const inView = nodes.filter(([, node]) => node && isInView(node));
  for (const [name, node] of new Set([...inView, ...nodes])) {
    due.delete(name);
    if (node) morph(node, parts.get(name), "outerHTML");
    if (performance.now() - now > FRAME_MS) break;
  }
  dress();
  if (due.size) requestAnimationFrame(catchUp);
};

const show = (names) => {
  if (names.length && !due.size) requestAnimationFrame(catchUp);
  for (const name of names) due.add(name);
};

// The words of a text that changed: see odradek/web/live/edits.py.
const edited = (text, edits) => {
  const pieces = text.split(/([ \n])/);
  for (const [index, count, words] of edits.reverse()) pieces.splice(index, count, words);
  return pieces.join("");
};

const receive = (kind, data, mine) => {
  if (kind === "full") {
    mine.abort();
    say("not live: too many pages are open");
  } else if (kind === "snapshot") {
    const before = parts;
    parts = new Map([...data.matchAll(PART)].map(([, name, html]) => [name, html.trim()]));
    show([...parts.keys()].filter((name) => parts.get(name) !== before.get(name)));
    // Parts that the document has are moved to their places, and changed later.
    morph(main, data, "innerHTML", (old, fresh) => parts.has(old.id) && old.id === fresh.id);
    dress();
  } else {
    for (const [name, change] of Object.entries(data)) {
      parts.set(name, typeof change === "string" ? change : edited(parts.get(name), change));
    }
    show(Object.keys(data));
  }
};

// An EventSource cannot send the token of a log-in, so the stream is read by fetch.
const listen = async () => {
  const mine = reading = new AbortController();
  let lastId = "";
  while (!mine.signal.aborted) {
    try {
      const headers = { accept: "text/event-stream", ...(lastId && { "last-event-id": lastId }) };
      const response = await fetch(document.location.href, { headers, signal: mine.signal });
      if (response.status === 401) document.location.reload();
      if (!response.ok) throw new Error(response.statusText);
      if (link.textContent === LOST) say("");
      const stream = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (let step = await stream.read(); !step.done; step = await stream.read()) {
        const events = (text + step.value).split("\n\n");
        text = events.pop();
        for (const event of events) {
          const fields = Object.fromEntries(event.split("\n").map((line) => line.split(/: (.*)/s)));
          if (!fields.event || mine.signal.aborted) continue;
          lastId = fields.id ?? lastId;
          receive(fields.event, fields.event === "full" ? null : JSON.parse(fields.data), mine);
        }
      }
    } catch { /* the connection was lost, or this stream is not read any more */ }
    if (mine.signal.aborted) return;
    say(LOST);
    await new Promise((go) => { setTimeout(go, AGAIN_MS); });
  }
};

// -------------------------------------------------------------------- what only a script can do

const COLOURS = ["--heat-0", "--heat-1", "--heat-2", "--heat-3", "--heat-4", "--heat-5", "--heat-6"];

const cells = (data) => data.split(";").filter(Boolean).flatMap((group) => {
  const [level, ranges] = group.split(":");
  return ranges.split(",").flatMap((range) => {
    const [first, last] = range.split("-").map(Number);
    return Array.from({ length: (last ?? first) - first + 1 }, (_, i) => [first + i, Number(level)]);
  });
});

// A cell of 8 x 16 pixels for each partition, the worst first; lower cells are the healthy ones.
const draw = (canvas) => {
  const found = cells(canvas.dataset.strip);
  canvas.hidden = false;
  const columns = Math.max(1, Math.floor(canvas.parentElement.clientWidth / 9));
  const rows = Math.ceil(found.length / columns);
  const scale = devicePixelRatio || 1;
  canvas.width = columns * 9 * scale;
  canvas.height = rows * 17 * scale;
  canvas.cells = { found, columns };
  const context = canvas.getContext("2d");
  // A property has the two colours of light-dark(); a colour that is in use is one of them.
  const colours = COLOURS.map((name) => {
    canvas.style.color = `var(${name})`;
    return getComputedStyle(canvas).color;
  });
  context.scale(scale, scale);
  found.forEach(([, level], place) => {
    context.fillStyle = colours[level];
    // A worse level is also a taller cell, for those who do not see the colours.
    const height = 4 + 2 * level;
    context.fillRect((place % columns) * 9, Math.floor(place / columns) * 17 + 16 - height, 8, height);
  });
};

const dress = () => {
  for (const button of document.querySelectorAll("button.copy[hidden]")) button.hidden = false;
  for (const canvas of document.querySelectorAll("canvas.strip")) {
    if (canvas.drawn !== canvas.dataset.strip || canvas.hidden) {
      draw(canvas);
      canvas.drawn = canvas.dataset.strip;
    }
  }
  if (canWrite()) for (const node of document.querySelectorAll("[data-write][hidden]")) node.hidden = false;
};

const save = async (response) => {
  const given = response.headers.get("content-disposition") ?? "";
  const name = /filename\*=UTF-8''([^;]+)/.exec(given) ?? /filename="([^"]+)"/.exec(given);
  const saved = document.createElement("a");
  saved.href = URL.createObjectURL(await response.blob());
  saved.download = name ? decodeURIComponent(name[1]) : "file";
  saved.click();
  setTimeout(() => URL.revokeObjectURL(saved.href), 60_000);
};

document.addEventListener("click", async (event) => {
  const copy = event.target.closest("button.copy");
  if (copy) {
    const { copy: text, copyFrom } = copy.dataset;
    await navigator.clipboard.writeText(text ?? await (await fetch(copyFrom)).text());
    copy.textContent = "Copied";
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
    return;
  }
  const file = event.target.closest("a[download]");
  if (file && store("session")) {
    event.preventDefault(); // a link cannot send the token
    await save(await fetch(file.href));
    return;
  }
  const canvas = event.target.closest("canvas.strip");
  if (canvas) {
    const { found, columns } = canvas.cells;
    const cell = found[Math.floor(event.offsetY / 17) * columns + Math.floor(event.offsetX / 9)];
    if (cell) document.location.search = `?partition=${cell[0]}`;
  }
});

// A form with data-auto is sent while it changes, and its answer replaces the content.
let timer;
document.addEventListener("input", (event) => {
  const form = event.target.closest("form[data-auto]");
  if (!form) return;
  clearTimeout(timer);
  timer = setTimeout(async () => {
    const url = `${form.action}?${new URLSearchParams(new FormData(form))}`;
    const text = await (await fetch(url)).text();
    history.replaceState(null, "", url);
    morph(main, new DOMParser().parseFromString(text, "text/html").getElementById("content").innerHTML, "innerHTML");
    dress();
    relisten();
  }, 120);
});

let afterG = false;
document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    const input = document.querySelector("input[type=search]");
    if (input) { input.focus(); event.preventDefault(); }
  } else if (afterG) {
    const target = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
    if (target) target.click();
  }
  afterG = event.key === "g";
});

const theme = document.getElementById("theme");
const wear = (name) => { if (name) document.documentElement.dataset.theme = name; };
wear(store("theme"));
theme.hidden = false;
theme.addEventListener("click", () => {
  const isDark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  wear(isDark ? "light" : "dark");
  store("theme", isDark ? "light" : "dark");
  for (const canvas of document.querySelectorAll("canvas.strip")) draw(canvas);
});
addEventListener("resize", () => document.querySelectorAll("canvas.strip").forEach(draw));

// ------------------------------------------------------------------------------------- writing

// The address that is printed at the start ends in #write=CODE; the code is valid once.
const canWrite = () => Boolean(store("token") ?? store("session"));

const exchange = async () => {
  const code = new URLSearchParams(document.location.hash.slice(1)).get("write");
  if (!code) return;
  const response = await fetch("/token", { method: "POST", body: JSON.stringify({ code }) });
  const answer = await response.json();
  history.replaceState(null, "", document.location.pathname + document.location.search);
  if (response.ok) store("token", answer.token);
  else say(answer.error);
};

document.getElementById("logout")?.addEventListener("click", async () => {
  await fetch("/logout", { method: "POST" });
  sessionStorage.removeItem("session");
  document.location.reload();
});

// A form with data-write is sent as JSON with the token; the answer is text in its output element.
document.addEventListener("submit", async (event) => {
  const form = event.target.closest("form[data-write]");
  if (!form) return;
  event.preventDefault();
  const output = form.querySelector("output");
  const fields = Object.fromEntries(new FormData(form, event.submitter));
  const response = await fetch(event.submitter?.getAttribute("formaction") ?? form.getAttribute("action"), {
    method: "POST",
    headers: { "content-type": "application/json", accept: "application/json", "x-odradek-token": store("token") ?? "" },
    body: JSON.stringify(fields),
  });
  const answer = await response.json();
  output.textContent = answer.error ?? answer.says ?? JSON.stringify(answer, null, 1);
  output.classList.toggle("problem", !response.ok);
  if (answer.open) document.location = answer.open;
});

await exchange();
dress();
if (main.dataset.live !== undefined) listen();
