// Package web is the page that shows live data in a browser: "nftproxy top" for
// people without a shell on the node.
package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"net/http"
	"strings"
)

// Path is where the metrics server serves the page.
const Path = "/web/"

//go:embed page.html page.css page.js
var files embed.FS

// Handler serves the page. It is one document: the style and the script are part of
// it, and its policy allows these two by their hashes, data of the same server, and
// nothing else.
func Handler() http.Handler {
	page, policy := build()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != Path {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "no-referrer")
		_, _ = w.Write(page) // fails if the client is gone
	})
}

// build returns the page and its policy.
func build() (page []byte, policy string) {
	page, css, js := read("page.html"), read("page.css"), read("page.js")
	page = bytes.Replace(page, []byte("{{style}}"), css, 1)
	page = bytes.Replace(page, []byte("{{script}}"), js, 1)
	return page, strings.Join([]string{
		"default-src 'none'",
		"script-src " + hash(js),
		"style-src " + hash(css),
		"connect-src 'self'",
		"img-src data:", // the icon, which is empty
		"base-uri 'none'",
		"form-action 'none'",
		"frame-ancestors 'none'",
		"require-trusted-types-for 'script'", // the script makes no markup from text
	}, "; ")
}

func read(name string) []byte {
	b, err := files.ReadFile(name)
	if err != nil {
		panic(err) // the file is part of the program
	}
	return b
}

// hash returns the source expression of a policy for an inline element.
func hash(content []byte) string {
	sum := sha256.Sum256(content)
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
