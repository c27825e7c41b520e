// locality_page.h: the page of ./locality: L(w) and the share of needy tokens of every set, and answers shaded
// token by token, with the tokens that each one leans on.
#pragma once
#include <cmath>
#include <string>
#include <vector>

#include "json_lines.h"
#include "report.h"

// `result`: as in locality.json; `examples`: as locality.cu makes them. Errors: the file cannot be written.
inline void write_locality_page(const std::string& path, const Json& result, const Json& examples) {
    HtmlReport page("Locality of answers", "scorer " + result["scorer"].get<std::string>() + ", truncation " +
                                               result["truncation"].get<std::string>());
    std::vector<Series> curves, needs, histograms;
    std::vector<std::vector<std::string>> table = {{"set", "texts", "tokens"}};
    for (const Json& window : result["windows"]) table[0].push_back("L(" + window.dump() + ")");
    for (const Json& set : result["sets"]) {
        Series curve{set["name"], {}}, need{set["name"], {}}, histogram{set["name"], {}};
        std::vector<std::string> row = {html_escape(set["name"]), set["texts"].dump(), set["tokens"].dump()};
        for (const Json& w : set["windows"]) {
            curve.points.push_back({w["window"], w["L"]});
            need.points.push_back({w["window"], w["needs_more"]});
            row.push_back(format("%.4f ±%.4f", w["L"].get<double>(),
                                 (w["high"].get<double>() - w["low"].get<double>()) / 2));
        }
        for (size_t b = 0; b < set["histogram"].size(); b++)
            histogram.points.push_back(
                {double(b) / 10 - 1 + 0.05, std::log10(1 + set["histogram"][b].get<double>())});
        curves.push_back(curve), needs.push_back(need), histograms.push_back(histogram);
        table.push_back(row);
    }
    page.line_chart("L(w) of each set", "window w (tokens)", "L(w)", curves);
    page.line_chart(format("share of response tokens that need more than w (gap > %g)",
                           result["threshold"].get<double>()),
                    "window w (tokens)", "share", needs, 0, 0);
    page.table(table,
               "L(w) = 1 - mean of max(0, p_full - p_w) over response tokens that lose context; 95% "
               "intervals, texts as units");
    page.line_chart("histogram of gaps at w = " + result["histogram_window"].dump(), "gap g = p_full - p_w",
                    "log10(1 + tokens)", histograms);
    page.html(
        "<h2>Token by token</h2><div class=controls><label>answer <select id=which></select></label>"
        "<label>window <input type=range id=window> <output id=w></output></label></div>"
        "<div class=text id=text></div><p class=panel id=panel></p>");
    page.script("const examples = " + script_json(examples) + ";\n" + R"JS(
const $ = id => document.getElementById(id);
examples.forEach((e, i) => $('which').add(new Option(`${e.set}: ${e.id} ${e.outcome}`, i)));
let e, spans;
function shade() {
  const k = +$('window').value, w = e.windows[k];
  $('w').textContent = w;
  spans.forEach((s, t) => {
    if (t < e.prompt) return;
    const gap = Math.max(0, e.full[t - e.prompt] - e.cut[k][t - e.prompt]);
    s.style.background = `rgba(214, 69, 28, ${gap.toFixed(3)})`;
  });
}
function hover(t) {
  spans.forEach(s => s.classList.remove('lean', 'here'));
  if (t < e.prompt) { $('panel').textContent = 'prompt'; return; }
  const i = t - e.prompt, k = +$('window').value;
  spans[t].classList.add('here');
  e.leans[i].forEach(([a, b]) => { for (let j = a; j <= b; j++) spans[j].classList.add('lean'); });
  const far = e.leans[i].map(([a, b]) => t - b + (a < b ? `-${t - a}` : '')).join(', ');
  $('panel').textContent = `token ${t} ${JSON.stringify(e.tokens[t])}: p_full ${e.full[i]}, p_${e.windows[k]} ` +
    `${e.cut[k][i]}, gap ${(e.full[i] - e.cut[k][i]).toFixed(4)}` + (far ? `; leans on tokens ${far} back (outlined)` : '');
}
function show() {
  e = examples[+$('which').value];
  $('text').innerHTML = '';
  spans = e.tokens.map((token, t) => {
    const s = document.createElement('span');
    s.textContent = token;
    if (t < e.prompt) s.className = 'prompt';
    s.onmouseenter = () => hover(t);
    $('text').append(s);
    return s;
  });
  const old = e.windows.indexOf(+$('w').textContent);
  $('window').max = e.windows.length - 1;
  $('window').value = old >= 0 ? old : Math.max(0, e.windows.findIndex(w => w >= 16));
  $('panel').textContent = 'hover a token: its probability with and without the rest, and the tokens it leans on';
  shade();
}
$('window').oninput = shade;
$('which').onchange = show;
if (examples.length) show();
)JS");
    page.write(path);
}
