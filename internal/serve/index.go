package serve

import (
	"fmt"
	"html"
	"net/http"
	"strings"
)

// Index returns a page with links to the pages that have a description, for people who
// look at a server in a browser. It has neither scripts nor parts from elsewhere.
func Index(title string, pages []Page) http.Handler {
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
	for _, p := range pages {
		if path := html.EscapeString(p.Path); p.About != "" {
			fmt.Fprintf(&b, "<dt><a href=\"%s\">%s</a></dt><dd>%s</dd>\n", path, path, html.EscapeString(p.About))
		}
	}
	b.WriteString("</dl>\n</html>\n")
	page := []byte(b.String())
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'")
		write(w, "text/html; charset=utf-8", page)
	})
}
