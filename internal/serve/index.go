package serve

import (
	"fmt"
	"html"
	"net/http"
	"strings"
)

// Link is a page of a server.
type Link struct{ Path, Text string }

// Index returns a page with links, for people who look at a server in a browser. It
// has neither scripts nor parts from elsewhere.
func Index(title string, links []Link) http.Handler {
	var b strings.Builder
	title = html.EscapeString(title)
	fmt.Fprintf(&b, `<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>%s</title>
<h1>%s</h1>
<dl>
`, title, title)
	for _, l := range links {
		path := html.EscapeString(l.Path)
		fmt.Fprintf(&b, "<dt><a href=\"%s\">%s</a></dt><dd>%s</dd>\n", path, path, html.EscapeString(l.Text))
	}
	b.WriteString("</dl>\n</html>\n")
	page := []byte(b.String())
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'")
		write(w, "text/html; charset=utf-8", page)
	})
}

// Links returns the pages that are set and that a browser can show.
func (p Pages) Links() (out []Link) {
	add := func(set bool, path, text string) {
		if set {
			out = append(out, Link{path, text})
		}
	}
	add(p.Pinged != nil, "/healthz", "ok while this server answers")
	add(p.Configz != nil, "/configz", "the configuration in effect, as JSON")
	add(p.Flags != nil, "/flagz", "the flags in effect")
	add(p.Version != "", "/statusz", "version and uptime")
	add(p.Profiling, "/debug/pprof/", "profiles of the process")
	return out
}
