package model

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/nftproxy/nftproxy/internal/parallel"
)

// Digest returns a hash of all that the routing follows from: the settings, the node, and
// each Service with its slices. If it is the same in two runs of one program, the routing
// is, too. The key has to be a secret, and another one each time: the hashes of Services are
// combined without an order, and their authors know everything else.
func (r *Router) Digest(key []byte) ([]byte, error) {
	shared, err := json.Marshal([]any{r.base.config, r.base.node, r.base.serviceCIDRs, len(r.services)})
	if err != nil {
		return nil, err
	}
	services := r.sumOfAll(key)
	h := sha256.New()
	h.Write(key)
	h.Write(shared)
	h.Write(services.digest[:])
	return h.Sum(nil), services.err
}

// DigestSoon announces a [Router.Digest] with a key of all Services that the router, which has none,
// gets next: these are hashed while it gets them.
func (r *Router) DigestSoon(key []byte) { r.soon = &announced{key: key} }

// announced is the sum for an announced digest.
type announced struct {
	key  []byte
	done chan sum // gets it; nil: it was not begun
}

// sum is a hash of Services with their slices.
type sum struct {
	digest digest
	err    error
}

func (a *announced) beginHashing(all []decided) {
	states := make([]*ServiceState, 0, len(all))
	for i := range all {
		if all[i].state.Service != nil {
			states = append(states, &all[i].state)
		}
	}
	a.done = make(chan sum, 1)
	processors := max(runtime.GOMAXPROCS(0)-1, 1) // the router gets the Services on the other one
	go func() { a.done <- sumOf(a.key, states, processors) }()
}

func (r *Router) sumOfAll(key []byte) sum {
	if a := r.soon; a != nil && a.done != nil && bytes.Equal(a.key, key) {
		out := <-a.done
		a.done <- out // for the next call
		return out
	}
	all := make([]*ServiceState, 0, len(r.services))
	for _, s := range r.services {
		all = append(all, &s.state)
	}
	return sumOf(key, all, runtime.GOMAXPROCS(0))
}

func sumOf(key []byte, all []*ServiceState, processors int) (out sum) {
	var guard sync.Mutex
	parallel.SpreadOver(processors, len(all), decideAtOnce, func(first, end int) {
		w, part := digester{key: key}, digest{}
		for _, s := range all[first:end] {
			part.add(w.hashState(s))
		}
		guard.Lock()
		defer guard.Unlock()
		out.digest.add(part)
		if out.err == nil {
			out.err = w.err
		}
	})
	return out
}

type digest [sha256.Size]byte

// add combines hashes of things without an order, none of which is there twice.
func (d *digest) add(o digest) {
	for i := range d {
		d[i] ^= o[i]
	}
}

// digester writes values so that no two different ones are written alike, and hashes them. It
// writes most by itself: there are hundreds of thousands of hosts.
type digester struct {
	key []byte
	b   []byte
	err error
}

func (w *digester) hashState(s *ServiceState) digest {
	w.b = append(w.b[:0], w.key...)
	w.writeService(s.Service)
	ss := s.Slices
	if len(ss) > 1 { // a source may have them in any order
		ss = slices.SortedFunc(slices.Values(ss), func(a, b *EndpointSlice) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
		})
	}
	for _, slice := range ss {
		w.writeSlice(slice)
	}
	return sha256.Sum256(w.b)
}

func (w *digester) writeService(s *Service) {
	w.writeText(s.Name.Namespace)
	w.writeText(s.Name.Name)
	w.writeNumber(uint64(s.Created))
	w.writeAddresses(s.ClusterIPs)
	w.writeLength(len(s.Ports))
	for i := range s.Ports {
		p := &s.Ports[i]
		w.writeText(p.Name)
		w.b = append(w.b, byte(p.Protocol), byte(p.Port>>8), byte(p.Port), byte(p.NodePort>>8), byte(p.NodePort))
	}
	w.writeNumber(uint64(s.AffinityTimeout))
	w.b = append(w.b, byte(s.InternalPolicy), byte(s.ExternalPolicy), byte(s.Scheduler), byte(s.ClientAddresses),
		byte(s.HealthCheckNodePort>>8), byte(s.HealthCheckNodePort), bitOf(s.NoClusterIP), bitOf(s.Balance),
		bitOf(s.External != nil), bitOf(s.Extras != nil), bitOf(s.Check != nil))
	if e := s.External; e != nil {
		w.writeAddresses(e.ExternalIPs)
		w.writeAddresses(e.LoadBalancerIPs)
		w.writeLength(len(e.SourceRanges))
		for _, p := range e.SourceRanges {
			w.writeAddress(p.Addr())
			w.b = append(w.b, byte(p.Bits()))
		}
	}
	if s.Extras != nil || s.Check != nil { // few have any
		rest, err := json.Marshal([]any{s.Extras, s.Check})
		w.writeText(string(rest))
		w.err = cmp.Or(w.err, err)
	}
}

func (w *digester) writeSlice(s *EndpointSlice) {
	if s == nil { // the Service is not served
		w.b = append(w.b, 0)
		return
	}
	w.b = append(w.b, 1, byte(s.Family), bitOf(s.CiliumWeight))
	w.writeText(s.Namespace)
	w.writeText(s.Name)
	w.writeText(s.Service)
	w.writeLength(len(s.Ports))
	for i := range s.Ports {
		p := &s.Ports[i]
		w.writeText(p.Name)
		w.b = append(w.b, byte(p.Protocol), byte(p.Port>>8), byte(p.Port))
	}
	w.writeLength(len(s.Hosts))
	for i := range s.Hosts {
		w.writeHost(&s.Hosts[i])
	}
}

func (w *digester) writeHost(h *Host) {
	w.writeAddress(h.Address)
	at := h.Place.get()
	w.writeText(at.node)
	w.writeText(at.zone)
	w.writeText(string(at.forZones))
	w.writeText(string(at.forNodes))
	w.b = append(w.b, bitOf(h.Ready)|bitOf(h.Serving)<<1|bitOf(h.Terminating)<<2|bitOf(h.Drain)<<3|bitOf(h.Failing)<<4,
		h.Priority, byte(h.Weight>>8), byte(h.Weight))
}

func (w *digester) writeText(s string) {
	w.writeLength(len(s))
	w.b = append(w.b, s...)
}

func (w *digester) writeLength(n int) { w.b = binary.AppendUvarint(w.b, uint64(n)) }

func (w *digester) writeNumber(n uint64) { w.b = binary.BigEndian.AppendUint64(w.b, n) }

func (w *digester) writeAddresses(all []netip.Addr) {
	w.writeLength(len(all))
	for _, a := range all {
		w.writeAddress(a)
	}
}

func (w *digester) writeAddress(a netip.Addr) {
	full := a.As16()
	switch w.b = append(w.b, byte(a.BitLen())); {
	case a.Is4():
		w.b = append(w.b, full[12:]...)
	default:
		w.b = append(w.b, full[:]...)
		w.writeText(a.Zone())
	}
}

func bitOf(set bool) byte {
	if set {
		return 1
	}
	return 0
}
