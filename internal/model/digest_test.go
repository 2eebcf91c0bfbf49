package model

import (
	"bytes"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"
)

// full returns a Service in which every field has a value.
func full() ServiceState {
	address, prefix := netip.MustParseAddr("10.96.0.1"), netip.MustParsePrefix("192.0.2.0/24")
	name := ServiceName{"shop", "cart"}
	port := ServicePort{"http", TCP, 80, 30080}
	return ServiceState{
		&Service{
			Name: name, Created: 5, ClusterIPs: []netip.Addr{address, netip.MustParseAddr("fd00::1")},
			External:        &External{[]netip.Addr{address}, []netip.Addr{address}, []netip.Prefix{prefix}},
			Ports:           []ServicePort{port},
			AffinityTimeout: time.Second, InternalPolicy: PolicyLocal, ExternalPolicy: PolicyLocal, Scheduler: Random,
			ClientAddresses: KeepClientAddresses, HealthCheckNodePort: 1, NoClusterIP: true, Balance: true,
			Extras: &Extras{
				EndpointsFrom: &name, Limits: Limits{1, 2, Rate{3, 4, PerHour}, Rate{5, 6, PerMinute}},
				Ranges: []PortRange{{port, 5, 6, true}}, Sources: &Sources{true, []netip.Prefix{prefix}, []netip.Prefix{prefix}},
				OnFailure: KeepOnFailure, Description: "text", MaglevSize: 251, ZoneFloor: 30, Observe: true, FastPath: UseFastPath, Relay: ProxyV2Relay, Announce: "eth0",
				SlowStart: time.Minute, RelayTimeout: time.Minute, Starting: []Starting{{netip.AddrPortFrom(address, 80), 3, time.Unix(1000, 0)}},
				Names:     []NamedServer{{"a", "b", true, []EndpointPort{{"http", TCP, 8080}}, 1, 2, true, []NamedAddress{{address, 1, 2, 3}}}},
				Listeners: []Listener{{"c", "d", []Family{IPv6}}}, MasqueradeFrom: []netip.Addr{address},
			},
			Check: &Check{
				Type: CheckHTTP, Port: 1, Interval: 2, Timeout: 3, Rise: 4, Fall: 5, AllFailing: RejectAll, Send: "a", Expect: "b", ExpectMatches: "c",
				Echo: true, HTTP: &HTTPCheck{"GET", "/", []StatusRange{{1, 2}}, "c", "d"}, Name: "e", TLS: true, Verify: true,
				Host: "f", Query: "g", Rcodes: []string{"h"}, Command: []string{"i"}, Failures: 6, Of: 7,
			},
		},
		[]*EndpointSlice{{
			"shop", "cart-1", "cart", IPv4, []EndpointPort{{"http", TCP, 8080}},
			[]Host{{address, NewPlace("node-1", "a", []string{"a"}, []string{"b"}), true, true, true, true, true, 1, 2}}, true,
		}},
	}
}

// eachChange calls f after each change of one part of a value.
func eachChange(t *testing.T, path string, v reflect.Value, f func(path string)) {
	t.Helper()
	set := func(to any) {
		before := reflect.New(v.Type()).Elem()
		before.Set(v)
		v.Set(reflect.ValueOf(to).Convert(v.Type()))
		f(path)
		v.Set(before)
	}
	if v.IsZero() {
		t.Errorf("%s has no value", path)
	}
	switch was := v.Interface().(type) {
	case netip.Addr:
		set(was.Next())
		return
	case netip.Prefix:
		set(netip.PrefixFrom(was.Addr(), was.Bits()-1))
		return
	case netip.AddrPort:
		set(netip.AddrPortFrom(was.Addr().Next(), was.Port()))
		set(netip.AddrPortFrom(was.Addr(), was.Port()+1))
		return
	case time.Time:
		set(was.Add(time.Second))
		return
	case Place:
		set(NewPlace("node-2", was.Zone(), was.ForZones(), was.ForNodes()))
		set(NewPlace("node-1", "b", was.ForZones(), was.ForNodes()))
		set(NewPlace("node-1", was.Zone(), nil, was.ForNodes()))
		set(NewPlace("node-1", was.Zone(), was.ForZones(), nil))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		set(!v.Bool())
	case reflect.String:
		set(v.String() + "x")
	case reflect.Pointer:
		eachChange(t, path, v.Elem(), f)
		set(reflect.Zero(v.Type()).Interface())
	case reflect.Slice:
		for i := range v.Len() {
			eachChange(t, path, v.Index(i), f)
		}
		set(reflect.Append(v, v.Index(0)).Interface())
		set(v.Slice(0, v.Len()-1).Interface())
	case reflect.Struct:
		for i := range v.NumField() {
			eachChange(t, path+"."+v.Type().Field(i).Name, v.Field(i), f)
		}
	default:
		if v.CanInt() {
			set(v.Int() + 1)
		} else {
			set(v.Uint() + 1)
		}
	}
}

// TestDigest: 13.30. Each part of a Service, of its slices and of the settings matters; the
// order of slices and of Services does not.
func TestDigest(t *testing.T) {
	state, other := full(), full()
	other.Service.Name.Name = "other"
	c, node := Config{NodeName: "node-1"}, &Node{Name: "node-1"}
	key := []byte("key")
	sum := func(c Config, states ...ServiceState) []byte {
		r := NewRouter()
		r.Configure(c, []*Node{node}, nil)
		for _, s := range states {
			r.SetServices(map[ServiceName]ServiceState{s.Service.Name: s})
		}
		sum, err := r.Digest(key)
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	want := sum(c, state, other)
	changes := 0
	eachChange(t, "state", reflect.ValueOf(&state).Elem(), func(path string) {
		if changes++; state.Service != nil && bytes.Equal(sum(c, state, other), want) {
			t.Errorf("%s makes no difference", path)
		}
	})
	if changes < 100 {
		t.Errorf("only %d changes", changes)
	}
	if !bytes.Equal(sum(c, other, state), want) {
		t.Error("the order of Services makes a difference")
	}
	second := *state.Slices[0]
	second.Name = "cart-2"
	two := ServiceState{state.Service, []*EndpointSlice{state.Slices[0], &second}}
	turned := ServiceState{state.Service, slices.Clone(two.Slices)}
	slices.Reverse(turned.Slices)
	if !bytes.Equal(sum(c, two), sum(c, turned)) || bytes.Equal(sum(c, two), sum(c, state)) {
		t.Error("the order of slices makes a difference, or their number none")
	}
	if bytes.Equal(sum(c, state), want) || bytes.Equal(sum(Config{NodeName: "node-1", MasqueradeAll: true}, state, other), want) {
		t.Error("the number of Services, or a setting, makes no difference")
	}
	node = &Node{Name: "node-1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/24")}}
	if bytes.Equal(sum(c, state, other), want) {
		t.Error("the node makes no difference")
	}
	node, key = &Node{Name: "node-1"}, []byte("another")
	if bytes.Equal(sum(c, state, other), want) {
		t.Error("the key makes no difference")
	}
}

// TestDigestSoon: 13.30. An announced digest is the same, also after other Services, and with another
// key.
func TestDigestSoon(t *testing.T) {
	state, other := full(), full()
	other.Service.Name.Name = "other"
	key := []byte("key")
	services := map[ServiceName]ServiceState{state.Service.Name: state, other.Service.Name: other, {Name: "gone"}: {}}
	digest := func(key []byte, announce, change bool) []byte {
		r := NewRouter()
		if announce {
			r.DigestSoon([]byte("key"))
		}
		r.SetServices(services)
		if change {
			r.SetServices(map[ServiceName]ServiceState{other.Service.Name: {}})
		}
		sum, err := r.Digest(key)
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	for _, change := range []bool{false, true} {
		for _, key := range [][]byte{key, []byte("another")} {
			if !bytes.Equal(digest(key, true, change), digest(key, false, change)) {
				t.Errorf("key %s, changed %t: another digest", key, change)
			}
		}
	}
	if bytes.Equal(digest(key, true, true), digest(key, true, false)) {
		t.Error("a change makes no difference")
	}
}
