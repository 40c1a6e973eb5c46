// What a model wrote, made visible and harmless: control, bidirectional and zero-width characters are drawn as what they
// are, and long texts are shortened until asked for.

const ODD = new RegExp(
  "[\\u0000-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u200b-\\u200f" +
  "\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffb]" +
  "|[\\ud800-\\udbff](?![\\udc00-\\udfff])|(?<![\\ud800-\\udbff])[\\udc00-\\udfff]|\\udb40[\\udc00-\\uddef]", "g");

const codePoint = (character) => "U+" + character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");

function oddName(character) {
  const code = character.codePointAt(0);
  if (character === "\n") return "↵";
  if (character === "\t") return "⇥";
  if (code < 32) return String.fromCharCode(0x2400 + code);
  return code === 127 ? "␡" : codePoint(character);
}

// Text as nodes: plain text, and a marked span for each character that would otherwise hide or rearrange something.
// `breaks`: a line end also ends the line on the page.
function visible(text, breaks = false) {
  if (text.search(ODD) < 0) return [text];
  const nodes = [];
  let at = 0;
  for (const match of text.matchAll(ODD)) {
    if (match.index > at) nodes.push(text.slice(at, match.index));
    nodes.push(el("span", { class: match[0] === "\n" || match[0] === "\t" ? "odd blank" : "odd" }, oddName(match[0])));
    if (breaks && match[0] === "\n") nodes.push("\n");
    at = match.index + match[0].length;
  }
  if (at < text.length) nodes.push(text.slice(at));
  return nodes;
}

// A token that stands by itself: where it is nothing but spaces, these are drawn.
const alone = (text) => visible(/^ +$/.test(text) ? "␣".repeat(text.length) : text);

const LONG_TOKEN = 200, SHOWN_OF_LONG = 60;
function shortened(text) {
  if (text.length <= LONG_TOKEN) return visible(text, true);
  return [...visible(text.slice(0, SHOWN_OF_LONG)), el("span", { class: "odd" }, `… ${count(text.length)} characters`)];
}

// Nodes as one short line of text, for places that take no markup.
const oneLine = (nodes) => el("span", {}, nodes).textContent.slice(0, 80);

// A passage that may be long: its beginning, and a button for the rest.
function passage(nodesOf, text, limit = 900) {
  const body = el("div", { class: "passage" });
  const fill = (all) => {
    body.replaceChildren(...nodesOf(all ? text : text.slice(0, limit)));
    if (!all && text.length > limit) {
      const rest = count(text.length - limit);
      body.append(" ", el("button", { type: "button", class: "quiet", onclick: () => fill(true) }, `show ${rest} more characters`));
    }
  };
  fill(text.length <= limit);
  return body;
}

// Where the teacher's prompt has more than the student's: the common beginning and end, and what stands between.
function insertion(plain, hinted) {
  const limit = Math.min(plain.length, hinted.length);
  let start = 0, end = 0;
  while (start < limit && plain[start] === hinted[start]) start++;
  while (end < limit - start && plain[plain.length - 1 - end] === hinted[hinted.length - 1 - end]) end++;
  // The same words at both seams can be counted to either side; begin at a word where that is possible.
  while (start > 0 && end < limit && hinted[start - 1] === hinted[hinted.length - end - 1] && /\S/.test(hinted[start - 1])) {
    start--;
    end++;
  }
  return { start, end: hinted.length - end };
}

const markedInsertion = (plain, hinted) => {
  const { start, end } = insertion(plain, hinted);
  return (shown) => [
    ...visible(shown.slice(0, start), true),
    el("mark", {}, visible(shown.slice(start, end), true)),
    ...visible(shown.slice(Math.max(start, end)), true),
  ];
};
