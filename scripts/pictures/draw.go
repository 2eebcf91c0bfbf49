package main

import (
	"bytes"
	"fmt"
	"html"
	"strings"
)

// style has the colours for pages with a light and with a dark background. Widths of
// text are estimates: fonts differ.
const style = `
text{font:16px ui-sans-serif,system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:#1f2328}
.title{font-size:21px;font-weight:600}.name{font-weight:600}.small{font-size:15px}.muted{fill:#59636e}
.code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:14.5px;fill:#0550ae}
.page{fill:#fff}.box{fill:#f6f8fa;stroke:#8c959f}.ours{fill:#ddf4ff;stroke:#0969da}.kernel{fill:#fff8c5;stroke:#9a6700}
.bad{fill:#ffebe9;stroke:#cf222e}.good{fill:#dafbe1;stroke:#1a7f37}.group{fill:none;stroke:#8c959f;stroke-dasharray:4 4}
.line{fill:none;stroke:#59636e;stroke-width:1.5}.dashed{stroke-dasharray:4 4}.head{fill:#59636e}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}.muted{fill:#9198a1}.code{fill:#79c0ff}
.page{fill:#0d1117}.box{fill:#151b23;stroke:#656c76}.ours{fill:#10233f;stroke:#4493f8}.kernel{fill:#2b2412;stroke:#d29922}
.bad{fill:#301318;stroke:#f85149}.good{fill:#0f2a1b;stroke:#3fb950}.group{stroke:#656c76}
.line{stroke:#9198a1}.head{fill:#9198a1}
}`

// drawing is a picture of a number of pixels.
type drawing struct {
	bytes.Buffer
	width, height float64
}

func newDrawing(title string, width, height float64) *drawing {
	d := &drawing{width: width, height: height}
	fmt.Fprintf(d, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%g" height="%g" role="img">
<title>%s</title>
<style>%s
</style>
<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto-start-reverse"><path class="head" d="M0 0L8 4L0 8z"/></marker></defs>
<rect class="page" width="%g" height="%g" rx="6"/>
`, width, height, width, height, html.EscapeString(title), style, width, height)
	d.text("title", 24, 34, title)
	return d
}

func (d *drawing) end() []byte {
	d.WriteString("</svg>\n")
	return d.Bytes()
}

func (d *drawing) text(class string, x, y float64, s string) {
	fmt.Fprintf(d, "<text class=%q x=\"%g\" y=\"%g\">%s</text>\n", class, x, y, html.EscapeString(s))
}

// centre writes a text around x.
func (d *drawing) centre(class string, x, y float64, s string) {
	fmt.Fprintf(d, "<text class=%q x=\"%g\" y=\"%g\" text-anchor=\"middle\">%s</text>\n", class, x, y, html.EscapeString(s))
}

// box draws a rectangle with lines of text. A line that begins with "*" is a name,
// with "`" code, with "~" a remark.
func (d *drawing) box(class string, x, y, w, h float64, lines ...string) {
	fmt.Fprintf(d, "<rect class=%q x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\" rx=\"6\"/>\n", class, x, y, w, h)
	const step = 21
	top := y + h/2 - float64(len(lines)-1)*step/2 + 5
	for i, line := range lines {
		class, text := "small", line
		for prefix, c := range map[string]string{"*": "name", "`": "code", "~": "small muted"} {
			if rest, ok := strings.CutPrefix(line, prefix); ok {
				class, text = c, rest
			}
		}
		d.centre(class, x+w/2, top+float64(i)*step, text)
	}
}

// arrow draws a line through points (x, y, x, y, ...) that ends in an arrow head.
func (d *drawing) arrow(class string, points ...float64) {
	d.WriteString(`<polyline class="line ` + class + `" marker-end="url(#head)" points="`)
	for i := 0; i < len(points); i += 2 {
		fmt.Fprintf(d, "%g,%g ", points[i], points[i+1])
	}
	d.WriteString("\"/>\n")
}
