package balance

import (
	"net/netip"
	"strings"

	"github.com/nftproxy/nftproxy/internal/source/convert"
)

const (
	isName = "is a name: listen has addresses of this machine, or an interface; write one"
	isURL  = "is a URL: write "
)

func parseListenAddress(s string) (netip.Addr, string) { return parseStrict(s, convert.ParseFrontend) }

func parseServer(s string) (netip.Addr, string) {
	a, problem := parseStrict(s, convert.ParseEndpoint)
	if problem != "" && a.IsLoopback() {
		problem = thisMachine
	}
	return a, problem
}

// parseStrict reads an address without leading zeros, which Kubernetes' own fields may
// have: other programs read them as octal.
func parseStrict(s string, parse func(string) (netip.Addr, string)) (netip.Addr, string) {
	a, problem := parse(s)
	switch {
	case problem == convert.NotAnAddress && looksLikeName(s):
		return a, isName
	case problem != "":
		return a, problem
	}
	return a, zeroProblem(s, a.String())
}

func zeroProblem(s, plain string) string {
	text, _, _ := strings.Cut(s, "/")
	if _, err := netip.ParseAddr(text); err != nil {
		return "has leading zeros, which other programs read as octal: write " + plain
	}
	return ""
}

func looksLikeName(s string) bool {
	letters := false
	for _, c := range strings.ToLower(s) {
		switch {
		case 'a' <= c && c <= 'z':
			letters = true
		case '0' <= c && c <= '9', c == '.', c == '-', c == '_':
		default:
			return false
		}
	}
	return letters
}

func urlProblem(text string) string {
	_, rest, found := strings.Cut(text, "://")
	if !found {
		return ""
	}
	host, _, _ := strings.Cut(rest, "/")
	return isURL + host
}
