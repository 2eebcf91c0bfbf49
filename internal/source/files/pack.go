package files

import (
	"net/netip"
	"strings"

	"github.com/nftproxy/nftproxy/internal/model"
)

// packAtOnce is how many parts are read before their objects are packed: few enough that little
// memory is kept for the others when one of them is replaced.
const packAtOnce = 256

// packFrom is how many objects are packed at least: an edit makes few.
const packFrom = 8

// pack moves the objects of parts that were read now, and what they hold, into memory that has
// nothing else. Otherwise they stay where they were made, between ten times as much that
// is no longer used, and keep its pages from the system.
func pack(fresh []*part) {
	if len(fresh) < packFrom {
		return
	}
	var s packed
	for _, p := range fresh {
		s.count(p.only)
	}
	s.allocate()
	for _, p := range fresh {
		p.only = s.add(p.only)
	}
}

// packed is the memory of several objects.
type packed struct {
	objects      room[object]
	services     room[model.Service]
	addresses    room[netip.Addr]
	servicePorts room[model.ServicePort]
	slices       room[model.EndpointSlice]
	ports        room[model.EndpointPort]
	hosts        room[model.Host]
	names        strings.Builder
	length       int // of names
}

// room is a part of the memory: first it only counts.
type room[T any] struct {
	n    int
	free []T
}

func (r *room[T]) allocate() { r.free = make([]T, r.n) }

// add returns a copy of a list, of which the caller can change nothing but the values.
func (r *room[T]) add(list []T) []T {
	if len(list) == 0 {
		return list
	}
	n := copy(r.free, list)
	out := r.free[:n:n]
	r.free = r.free[n:]
	return out
}

// one returns a copy of a value.
func (r *room[T]) one(v *T) *T {
	out := &r.free[0]
	*out, r.free = *v, r.free[1:]
	return out
}

func (s *packed) count(o *object) {
	if o == nil {
		return
	}
	s.objects.n++
	if v := o.service; v != nil {
		s.services.n++
		s.addresses.n += len(v.ClusterIPs)
		s.servicePorts.n += len(v.Ports)
		s.length += len(v.Name.Name)
	}
	if v := o.one[0]; v != nil {
		s.slices.n++
		s.ports.n += len(v.Ports)
		s.hosts.n += len(v.Hosts)
		s.length += len(v.Name) + len(v.Service)
	}
}

func (s *packed) allocate() {
	s.objects.allocate()
	s.services.allocate()
	s.addresses.allocate()
	s.servicePorts.allocate()
	s.slices.allocate()
	s.ports.allocate()
	s.hosts.allocate()
	s.names.Grow(s.length)
}

// add returns a copy of an object that has been counted.
func (s *packed) add(o *object) *object {
	if o == nil {
		return nil
	}
	out := s.objects.one(o)
	if o.service != nil {
		v := s.services.one(o.service)
		v.ClusterIPs, v.Ports, v.Name.Name = s.addresses.add(v.ClusterIPs), s.servicePorts.add(v.Ports), s.name(v.Name.Name)
		out.service = v
	}
	if o.one[0] != nil {
		v := s.slices.one(o.one[0])
		v.Ports, v.Hosts = s.ports.add(v.Ports), s.hosts.add(v.Hosts)
		v.Name, v.Service = s.name(v.Name), s.name(v.Service)
		out.one[0] = v
	}
	return out
}

// name returns a copy of a text.
func (s *packed) name(text string) string {
	s.names.WriteString(text)
	all := s.names.String()
	return all[len(all)-len(text):]
}
