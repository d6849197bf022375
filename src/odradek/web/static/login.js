// Every view answers with this page until its request has the token of a log-in. The token is kept
// by this tab only, and no cookie has it: each view is fetched with it and then takes this document.

const kept = "session";
const form = document.getElementById("login");
const output = form.querySelector("output");
const send = window.fetch.bind(window);

const ask = (text) => {
  form.hidden = false;
  output.textContent = text;
  form.elements.user.focus();
};

const open = async (token) => {
  const response = await send(document.location.href, {
    headers: { accept: "text/html", authorization: `Bearer ${token}` },
  });
  if (response.status === 401) {
    sessionStorage.removeItem(kept);
    ask("The log-in has expired.");
    return;
  }
  const html = await response.text();
  // The scripts of the view fetch with the token, too: from this origin only, by the page's policy.
  window.fetch = (url, options = {}) =>
    send(url, { ...options, headers: { ...options.headers, authorization: `Bearer ${token}` } });
  document.open();
  document.write(html);
  document.close();
};

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  output.textContent = "";
  const response = await send("/login", {
    method: "POST",
    headers: { "content-type": "application/json", accept: "application/json" },
    body: JSON.stringify(Object.fromEntries(new FormData(form))),
  });
  const answer = await response.json();
  form.elements.password.value = "";
  if (!response.ok) {
    output.textContent = answer.error;
    return;
  }
  sessionStorage.setItem(kept, answer.token);
  await open(answer.token);
});

const token = sessionStorage.getItem(kept);
if (token) await open(token);
else ask("");
