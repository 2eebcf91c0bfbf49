package balance

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/source/convert"
)

// isRelayed reports whether connections are relayed. A default is for Balances with a port of TCP.
func (e *expander) isRelayed() bool {
	isTCP := func(r balanceRange) bool { return r.protocol == model.TCP }
	return e.givenValue(setting.Relay.Field) != nil && (!e.isInherited(setting.Relay) || slices.ContainsFunc(e.listened, isTCP))
}

func (e *expander) isInherited(s *setting.Setting) bool { return slices.Contains(e.inherited, s.Field) }

// parseServer reads the address of a backend. A relay reaches servers of this machine itself.
func (e *expander) parseServer(s string) (netip.Addr, string) {
	a, problem := parseServer(s)
	if problem == thisMachine && e.isRelayed() {
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
		"is not possible with relay: its connections come from this machine; write clientAddresses: masquerade, and relay: proxy-v2 for a server that reads the PROXY protocol, or relay: false"},
	{setting.Affinity, func(v *setting.Values) bool { return v.Affinity > 0 },
		"is not possible with relay: write affinity: 0s and scheduler: source-hash, which gives a client the same server while the servers stay"},
	{setting.Scheduler, func(v *setting.Values) bool { return v.Scheduler.IsMaglev() },
		"is not possible with relay, which has no tables: use round-robin, random or source-hash"},
	{setting.MaglevSize, func(v *setting.Values) bool { return v.MaglevSize != 0 },
		"is not possible with relay, which has no tables: remove it"},
	{setting.FastPath, func(v *setting.Values) bool { return v.FastPath == model.UseFastPath },
		"is not possible with relay: packets go to nftproxy run; write fastPath: avoid, or relay: false"},
	{setting.Observe, func(v *setting.Values) bool { return v.Observe },
		"is not possible with relay: rules do not know which server it uses; write observe: none, or relay: false"},
	{setting.Check, func(v *setting.Values) bool { return v.Check != nil && v.Check.Type == model.CheckPassive },
		"of type passive is not possible with relay: rules do not know which server it uses; use tcp or another type"},
}

func (e *expander) reviewRelay() {
	if e.values.Relay == model.NoRelay {
		if e.values.RelayTimeout != 0 && e.givenValue(setting.Relay.Field) == nil {
			e.Add(setting.Timeout.Field, nil, "is for connections that nftproxy relays: write relay: true, or remove it")
		}
		return
	}
	if e.isInherited(setting.MaglevSize) {
		e.values.MaglevSize = 0
	}
	for _, r := range e.listened {
		switch {
		case r.protocol != model.TCP:
			e.Add(r.fieldPath(), r.text, fmt.Sprintf("is of %s, and relay is for TCP: use another Balance for it, without relay", r.protocol))
		case r.Count() > 1:
			e.Add(r.fieldPath(), r.text, "is a range of ports, and relay is for single ports: write these, or relay: false")
		}
	}
	for _, r := range relayRefusals {
		if r.refuses(&e.values) {
			e.Add(r.of.Field, nil, r.problem)
		}
	}
}
