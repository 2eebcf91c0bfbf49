package bundle

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// Pseudonyms replace addresses and names: the same one by the same pseudonym everywhere. Two
// addresses of one network get pseudonyms of one network, whatever the length of its prefix, so
// that ranges still have their members. It is not safe for concurrent use.
type Pseudonyms struct {
	key       [32]byte
	addresses map[netip.Addr]netip.Addr
	names     map[string]string // lower case
	kinds     map[string]int
}

// NewPseudonyms returns pseudonyms with a key of their own: those of two archives differ.
func NewPseudonyms() *Pseudonyms {
	p := &Pseudonyms{addresses: make(map[netip.Addr]netip.Addr), names: make(map[string]string), kinds: make(map[string]int)}
	_, _ = rand.Read(p.key[:]) // it cannot fail
	return p
}

// stays are names that every cluster has, and words of the texts themselves.
var stays = map[string]bool{
	"default": true, "kube-system": true, "kube-public": true, "kube-node-lease": true, "kubernetes": true, "kube-dns": true,
	"nftproxy": true, "kube-proxy": true, "localhost": true, "": true,
	"node": true, "namespace": true, "service": true, "pod": true, "host": true, "slice": true, // kinds of pseudonyms
}

// Name has a name replaced by "kind-number" wherever it is a word of its own, or the beginning
// of one before a hyphen.
func (p *Pseudonyms) Name(kind, name string) {
	name = strings.ToLower(name)
	if stays[name] || p.names[name] != "" {
		return
	}
	p.kinds[kind]++
	p.names[name] = kind + "-" + strconv.Itoa(p.kinds[kind])
}

// Table returns what each pseudonym stands for, for the one who made the archive.
func (p *Pseudonyms) Table() map[string]string {
	out := make(map[string]string)
	for from, to := range p.addresses {
		out[to.String()] = from.String()
	}
	for from, to := range p.names {
		out[to] = from
	}
	return out
}

var (
	// number is an IPv4 address, also with the hyphens of names that clouds give to machines.
	number = regexp.MustCompile(`\b(?:\d{1,3}\.){3}\d{1,3}(?:/\d{1,2})?\b|\b(?:\d{1,3}-){3}\d{1,3}\b`)
	// address is one, or what may be an IPv6 address.
	address = regexp.MustCompile(`[0-9A-Fa-f]*:[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*(?:/\d{1,3})?|` + number.String())
	// word may be a name, or has names before a hyphen.
	word = regexp.MustCompile(`[A-Za-z0-9](?:[A-Za-z0-9_-]*[A-Za-z0-9])?`)
	// domain may be the name of a host.
	domain = regexp.MustCompile(`\b(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)+[A-Za-z][A-Za-z0-9-]*\b`)
	// private are the last labels of domains with two, besides those with up to 4 letters: others
	// are names of functions, such as runtime.main, or of fields.
	private = regexp.MustCompile(`(?i)\.(?:[a-z]{2,4}|local|internal|cloud|corp|home|lan|test|example|invalid|online)$`)
	// publicDomain has domains that name no one, and files.
	publicDomain = regexp.MustCompile(`(?i)(?:^|\.)(?:nftproxy\.dev|k8s\.io|kubernetes\.io|github\.com|golang\.org|google\.golang\.org|ghcr\.io|sigs\.k8s\.io|cluster\.local|svc|yaml|yml|json|conf|txt|log|go|sock|service|md|html|js|css|xt_[a-z]+|[a-z]+ip[a-z0-9_]*|nf_[a-z_]+|net|ipv4|ipv6|max|min|forwarding|all|conntrack|so|ko|io|crt|pem)$`)
)

// Text returns a text with pseudonyms.
func (p *Pseudonyms) Text(text string) string {
	text = domain.ReplaceAllStringFunc(text, p.host)
	text = word.ReplaceAllStringFunc(text, p.word)
	return address.ReplaceAllStringFunc(text, func(found string) string {
		if strings.Contains(found, ":") {
			return p.six(found)
		}
		return p.four(found)
	})
}

// JSON returns a JSON document with pseudonyms in its strings. The names of fields stay, except
// those that are addresses or names themselves, as in maps.
func (p *Pseudonyms) JSON(text string) string {
	return mapped(text, p.Text, p.field, func(_, value string) string { return p.Text(value) })
}

// fieldName is a name of a field, which no name of an object replaces.
var fieldName = regexp.MustCompile(`^[a-z][A-Za-z0-9]*$`)

func (p *Pseudonyms) field(name string) string {
	if fieldName.MatchString(name) {
		return name
	}
	return p.Text(name)
}

func (p *Pseudonyms) word(w string) string {
	lower := strings.ToLower(w)
	for end := len(lower); end > 0; end = strings.LastIndexByte(lower[:end], '-') {
		if to := p.names[lower[:end]]; to != "" {
			return to + w[end:]
		}
	}
	return w
}

// host replaces the labels of a domain that is not public, one by one.
func (p *Pseudonyms) host(d string) string {
	if to := p.names[strings.ToLower(d)]; to != "" {
		return to
	}
	if publicDomain.MatchString(d) || strings.Count(d, ".") == 1 && !private.MatchString(d) {
		return d
	}
	p.Name("host", d)
	return p.names[strings.ToLower(d)]
}

func (p *Pseudonyms) six(text string) string {
	body, length, prefix := strings.Cut(text, "/")
	end := len(body)
	for end > 0 {
		a, err := netip.ParseAddr(body[:end])
		if err == nil && a.Is6() {
			if prefix && end == len(body) {
				return p.prefix(a, length, text)
			}
			return p.address(a).String() + text[end:]
		}
		if c := body[end-1]; c != ':' && c != '.' {
			break
		}
		end--
	}
	return number.ReplaceAllStringFunc(text, p.four) // as in 12:30:192.0.2.1
}

func (p *Pseudonyms) four(text string) string {
	body, length, prefix := strings.Cut(text, "/")
	dotted := strings.ReplaceAll(body, "-", ".")
	a, err := netip.ParseAddr(dotted)
	switch {
	case err != nil:
		return text
	case prefix:
		return p.prefix(a, length, text)
	case dotted != body:
		return strings.ReplaceAll(p.address(a).String(), ".", "-")
	}
	return p.address(a).String()
}

// prefix replaces a range: bits of the host that are zero stay zero.
func (p *Pseudonyms) prefix(a netip.Addr, length, text string) string {
	n, err := strconv.Atoi(length)
	if err != nil || n > a.BitLen() {
		return text
	}
	from := netip.PrefixFrom(a, n)
	to := netip.PrefixFrom(p.address(a), n)
	if from == from.Masked() {
		to = to.Masked()
	}
	return to.String()
}

// address returns the pseudonym of an address: each bit is changed or not as the key and the
// bits before it say. Addresses that every machine has stay.
func (p *Pseudonyms) address(a netip.Addr) netip.Addr {
	if a.Is4In6() {
		return netip.AddrFrom16(p.address(a.Unmap()).As16())
	}
	if a = a.WithZone(""); isCommon(a) {
		return a
	}
	if to, ok := p.addresses[a]; ok {
		return to
	}
	in := a.AsSlice()
	out := make([]byte, len(in))
	before := make([]byte, len(in)+2)
	before[len(in)+1] = byte(len(in))
	for bit := range a.BitLen() {
		at, mask := bit/8, byte(0x80)>>(bit%8)
		h := hmac.New(sha256.New, p.key[:])
		before[len(in)] = byte(bit)
		h.Write(before)
		flip := h.Sum(nil)[0] & 1
		if (in[at]&mask != 0) != (flip == 1) {
			out[at] |= mask
		}
		before[at] |= in[at] & mask
	}
	to, _ := netip.AddrFromSlice(out)
	if isCommon(to) { // it would look like one that stays
		out[0] ^= 0x40
		to, _ = netip.AddrFromSlice(out)
	}
	p.addresses[a] = to
	return to
}

// isCommon reports whether every machine has or knows an address.
func isCommon(a netip.Addr) bool {
	return a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255})
}
