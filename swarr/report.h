// report.h: self-contained HTML: one file, inline data, styles and script, no network. Figures are drawn from
// JSON data in the page, so that a report holds the numbers it shows.
//
//   HtmlReport page("Locality", "which tokens need far-away context");
//   page.line_chart("L(w)", "window w", "L", {{"sft", {{16, 0.7}, {24, 0.8}}}});
//   page.html("<p>...</p>");
//   page.write("runs/locality.html");
#pragma once
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "files.h"
#include "json_lines.h"

inline std::string html_escape(const std::string& text) {
    std::string out;
    for (char c : text) {
        if (c == '&')
            out += "&amp;";
        else if (c == '<')
            out += "&lt;";
        else if (c == '>')
            out += "&gt;";
        else if (c == '"')
            out += "&quot;";
        else
            out += c;
    }
    return out;
}

// JSON that may stand inside <script>: "</script>" and "<!--" in a string cannot end or open anything.
inline std::string script_json(const Json& value) {
    std::string out, text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    for (char c : text) out += c == '<' ? std::string("\\u003c") : std::string(1, c);
    return out;
}

struct Series {
    std::string name;
    std::vector<std::pair<double, double>> points;
    bool dashed = false;
};

class HtmlReport {
  public:
    HtmlReport(const std::string& title, const std::string& subtitle) {
        body_ = "<h1>" + html_escape(title) + "</h1>\n<p class=sub>" + html_escape(subtitle) + "</p>\n";
        title_ = title;
    }

    void html(const std::string& text) { body_ += text + "\n"; }
    void script(const std::string& text) { script_ += text + "\n"; }

    // cells[0] is the head; a cell may hold HTML that the caller has escaped.
    void table(const std::vector<std::vector<std::string>>& cells, const std::string& caption = "") {
        body_ += "<div class=wide><table>" +
                 (caption.empty() ? "" : "<caption>" + html_escape(caption) + "</caption>");
        for (size_t r = 0; r < cells.size(); r++) {
            body_ += "<tr>";
            for (size_t c = 0; c < cells[r].size(); c++) {
                const char* tag = r == 0 || c == 0 ? "th" : "td";
                body_ += std::string("<") + tag + ">" + cells[r][c] + "</" + tag + ">";
            }
            body_ += "</tr>\n";
        }
        body_ += "</table></div>\n";
    }

    // An SVG with axes, one line per series and a legend; y from `low` to `high` (equal: from the data).
    void line_chart(const std::string& title, const std::string& x_name, const std::string& y_name,
                    const std::vector<Series>& series, double low = 0, double high = 0) {
        double x0 = 1e300, x1 = -1e300, y0 = 1e300, y1 = -1e300;
        for (const Series& s : series)
            for (auto [x, y] : s.points) {
                x0 = std::min(x0, x), x1 = std::max(x1, x);
                y0 = std::min(y0, y), y1 = std::max(y1, y);
            }
        if (low < high) y0 = low, y1 = high;
        if (!(x0 <= x1)) return html("<p>" + html_escape(title) + ": no data</p>");
        if (x0 == x1) x1 = x0 + 1;
        if (y0 == y1) y1 = y0 + 1;
        const double W = 560, H = 300, left = 56, right = 14, top = 14, bottom = 40;
        auto px = [&](double x) { return left + (x - x0) / (x1 - x0) * (W - left - right); };
        auto py = [&](double y) { return H - bottom - (y - y0) / (y1 - y0) * (H - top - bottom); };
        std::string svg = format("<svg viewBox='0 0 %g %g' role=img>", W, H);
        for (double y : ticks(y0, y1)) {
            svg += format("<line class=grid x1=%g x2=%g y1=%.1f y2=%.1f />", left, W - right, py(y), py(y));
            svg += format("<text x=%g y=%.1f text-anchor=end>%.4g</text>", left - 6, py(y) + 4, y);
        }
        for (double x : ticks(x0, x1))
            svg += format("<text x=%.1f y=%g text-anchor=middle>%.4g</text>", px(x), H - bottom + 16, x);
        svg += format("<text x=%g y=%g text-anchor=middle>", (left + W - right) / 2, H - 6) +
               html_escape(x_name) + "</text>";
        svg += format("<text x=12 y=%g text-anchor=middle transform='rotate(-90 12 %g)'>", H / 2, H / 2) +
               html_escape(y_name) + "</text>";
        std::string legend;
        for (size_t i = 0; i < series.size(); i++) {
            std::string points;
            for (auto [x, y] : series[i].points) points += format("%.1f,%.1f ", px(x), py(y));
            const char* dash = series[i].dashed ? " stroke-dasharray='5 4'" : "";
            svg += "<polyline fill=none stroke-width=2 stroke='" + colour(i) + "'" + dash + " points='" +
                   points + "'/>";
            for (auto [x, y] : series[i].points)
                svg += format("<circle r=3 cx=%.1f cy=%.1f fill='", px(x), py(y)) + colour(i) + "'><title>" +
                       html_escape(series[i].name) + format(": %g, %.4g", x, y) + "</title></circle>";
            legend += "<span><i style='background:" + colour(i) + "'></i>" + html_escape(series[i].name) +
                      "</span> ";
        }
        body_ += "<figure><figcaption>" + html_escape(title) + "</figcaption>" + svg +
                 "</svg><div class=legend>" + legend + "</div></figure>\n";
    }

    // A few round numbers from `low` to `high`: multiples of 1, 2 or 5 times a power of ten.
    static std::vector<double> ticks(double low, double high) {
        double step = std::pow(10, std::floor(std::log10((high - low) / 2)));
        if ((high - low) / step > 12.5)
            step *= 5;
        else if ((high - low) / step > 5)
            step *= 2;
        std::vector<double> out;
        for (double i = std::ceil(low / step - 1e-9) + 0.0; i * step <= high + 1e-9 * step; i++)
            out.push_back(i * step);
        return out;
    }

    static std::string colour(size_t i) {
        const char* colours[] = {"#2f6fb0", "#c8502d", "#2e8b57", "#8a5bb5", "#b8860b", "#c2397c",
                                 "#4b8f8f", "#6b6b6b", "#111111", "#8bbf2f", "#e39ac0", "#7a4a2b"};
        return colours[i % 12];
    }

    void write(const std::string& path) const {
        write_whole(
            path, "<!doctype html>\n<html lang=en><meta charset=utf-8>\n<title>" + html_escape(title_) +
                      "</title>\n<meta name=viewport content='width=device-width'>\n<style>\n" + style() +
                      "</style>\n<body>\n" + body_ + "<script>\n" + script_ + "</script>\n</body></html>\n");
    }

  private:
    static const char* style() {
        return "body{font:15px/1.5 system-ui,sans-serif;color:#222;max-width:1180px;margin:2em "
               "auto;padding:0 1em}\n"
               "h1{font-size:1.6em;margin:0}h2{font-size:1.2em;margin:1.6em 0 "
               ".4em}.sub{color:#666;margin:.2em 0 1.2em}\n"
               "table{border-collapse:collapse;font-variant-numeric:tabular-nums}\n"
               ".wide{overflow-x:auto;margin:1em 0}.wide td{white-space:nowrap}\n"
               "caption{text-align:left;color:#666;padding-bottom:.3em}\n"
               "th,td{padding:.25em .8em;border-bottom:1px solid "
               "#ddd;text-align:right}th:first-child{text-align:left}\n"
               "tr:first-child th{border-bottom:2px solid #999;color:#444}\n"
               "figure{display:inline-block;width:560px;max-width:100%;margin:0 1em 1em "
               "0;vertical-align:top}\n"
               "figcaption{font-weight:600}svg{width:100%;height:auto}svg text{font:11px "
               "sans-serif;fill:#555}\n"
               ".grid{stroke:#e4e4e4}.legend{font-size:.88em;color:#444}.legend "
               "span{margin-right:.9em;white-space:nowrap}\n"
               ".legend "
               "i{display:inline-block;width:14px;height:4px;margin-right:.35em;vertical-align:middle}\n"
               ".text{font:15px/2 "
               "ui-monospace,monospace;white-space:pre-wrap;word-break:break-all;border:1px solid "
               "#ddd;border-radius:6px;padding:.6em .9em}\n"
               ".text span{border-radius:3px;padding:2px 0;cursor:default}.text .prompt{color:#888}\n"
               ".text .lean{outline:2px solid #2f6fb0}.text .here{outline:2px solid #222}\n"
               ".panel{min-height:3.2em;color:#444}.controls{display:flex;gap:1.2em;align-items:center;flex-"
               "wrap:wrap;"
               "margin:.6em 0}.controls select,input[type=range]{width:320px;max-width:80vw}\n";
    }
    std::string title_, body_, script_;
};
