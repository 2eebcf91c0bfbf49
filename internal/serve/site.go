package serve

import (
	"net/http"
	"slices"
)

// Page is a page of a [Site].
type Page struct {
	Path    string   // pattern of [http.ServeMux], without a method
	Methods []string // that are answered; nil: GET and HEAD
	// Public answers any method, host name and origin: for health checks. The answer
	// must say no more than any host that reaches the server may know.
	Public  bool
	Handler http.Handler
	About   string // its content, for the index; empty: it is not listed
}

func (p *Page) allowedMethods() []string {
	if p.Methods == nil {
		return []string{http.MethodGet, http.MethodHead}
	}
	return p.Methods
}

// Site is a set of pages for a [Server], each of them behind a [Guard].
type Site struct {
	mux   *http.ServeMux
	pages []Page
}

// NewSite returns a site. Paths without a page answer 404.
func NewSite(g Guard, pages []Page) *Site {
	s := &Site{mux: http.NewServeMux(), pages: slices.Clone(pages)}
	for _, p := range s.pages {
		s.mux.Handle(p.Path, g.protectPage(p))
	}
	return s
}

// Pages returns the pages of the site.
func (s *Site) Pages() []Page { return slices.Clone(s.pages) }

// ServeHTTP implements [http.Handler].
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }
