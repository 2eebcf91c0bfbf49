package changes

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/served"
)

// digestSize is how many bytes of a SHA-256 a digest has: 64 bits distinguish rules that are not
// forged.
const digestSize = 8

// Digests returns what identifies the rules of each Service, as namespace/name; "" are all others,
// with the chains. The rules are as rendered, with endpoints in the order of the renderer.
func Digests(r *nft.Ruleset) map[string]string {
	sums := make(map[string]hash.Hash)
	add := func(service, text string) {
		h := sums[service]
		if h == nil {
			h = sha256.New()
			sums[service] = h
		}
		h.Write([]byte(text))
		h.Write([]byte{'\n'})
	}
	eachElement(r, add)
	for _, t := range r.Tables {
		for _, c := range t.Chains {
			add("", c.Name)
			for _, rule := range c.Rules {
				add("", rule.Text(t.Family))
			}
		}
	}
	out := make(map[string]string, len(sums))
	for service, h := range sums {
		out[service] = hex.EncodeToString(h.Sum(nil)[:digestSize])
	}
	return out
}

// ElementsOf returns the elements of a Service, as namespace/name, each with its set.
func ElementsOf(r *nft.Ruleset, service string) (out []string) {
	eachElement(r, func(of, text string) {
		if of == service {
			out = append(out, text)
		}
	})
	return out
}

// eachElement calls f with the Service of each element, "" if it is of none alone, and its text.
// What packets write is left out.
func eachElement(r *nft.Ruleset, f func(service, text string)) {
	for _, t := range r.Tables {
		names := make(map[model.Frontend]string)
		for n := range served.Read(t).Names() {
			names[n.Frontend] = n.Port.Service.String()
		}
		for _, s := range t.Sets {
			if s.Dynamic {
				continue
			}
			prefix := s.Keyword() + " " + nft.FamilyKeyword(t.Family) + " " + nft.TableName + " " + s.Name + " "
			for i := range s.Elements {
				e := &s.Elements[i]
				service := ""
				if ofFrontend(s) {
					service = names[t.FrontendOf(s, e.Key)]
				}
				f(service, prefix+s.ElementText(&nft.Element{Key: e.Key, Value: e.Value}))
			}
		}
	}
}
