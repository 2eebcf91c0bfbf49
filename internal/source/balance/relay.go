package balance

import (
	"fmt"
	"net/netip"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/source/convert"
)

// relays reports whether the author asks for a relay.
func (b *Balance) relays() bool { return b.given(setting.Relay.Field) != nil }

// parseServer reads the address of a backend. A relay reaches servers of this machine itself.
func (b *Balance) parseServer(s string) (netip.Addr, string) {
	a, problem := parseServer(s)
	if problem == thisMachine && b.relays() {
		return parseStrict(s, convert.ParseAddress)
	}
	return a, problem
}

// relayRefusals are settings that a relay cannot fulfil.
var relayRefusals = []struct {
	of      *setting.Setting
	refuses func(*setting.Values) bool
	problem string
}{
	{setting.ClientAddresses, func(v *setting.Values) bool { return v.ClientAddresses == model.KeepClientAddresses },
		"is not possible with relay: its connections come from this machine; write relay: proxy-v2 for a server that reads the PROXY protocol, or leave out relay"},
	{setting.Affinity, func(v *setting.Values) bool { return v.Affinity > 0 },
		"is not possible with relay: write scheduler: source-hash, which gives a client the same server while the servers stay"},
	{setting.Scheduler, func(v *setting.Values) bool { return v.Scheduler.IsMaglev() },
		"is not possible with relay, which has no tables: use round-robin, random or source-hash"},
	{setting.MaglevSize, func(v *setting.Values) bool { return v.MaglevSize != 0 },
		"is not possible with relay, which has no tables: remove it"},
	{setting.FastPath, func(v *setting.Values) bool { return v.FastPath == model.UseFastPath },
		"is not possible with relay: packets go to nftproxy run; remove one of them"},
	{setting.Observe, func(v *setting.Values) bool { return v.Observe },
		"is not possible with relay: rules do not know which server it uses; remove one of them"},
	{setting.Check, func(v *setting.Values) bool { return v.Check != nil && v.Check.Type == model.CheckPassive },
		"of type passive is not possible with relay: rules do not know which server it uses; use tcp or another type"},
}

// reviewRelay refuses what a relay cannot do.
func (e *expander) reviewRelay() {
	if e.values.Relay == model.NoRelay {
		return
	}
	for _, r := range e.listened {
		switch {
		case r.protocol != model.TCP:
			e.Add(r.field(), r.text, fmt.Sprintf("is of %s, and relay is for TCP: use another Balance for it, without relay", r.protocol))
		case r.Count() > 1:
			e.Add(r.field(), r.text, "is a range of ports, and relay is for single ports: write these, or leave out relay")
		}
	}
	for _, r := range relayRefusals {
		if r.refuses(&e.values) {
			e.Add(r.of.Field, nil, r.problem)
		}
	}
}
