package workload

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// Statements returns a rule with a statement of each type, by its name. Foreign is
// not among them, because it is never written.
func Statements(f model.Family) map[string]nft.Rule {
	some := netip.MustParsePrefix("10.128.0.0/9")
	if f == model.IPv6 {
		some = netip.MustParsePrefix("fd00:10:128::/48")
	}
	dialled := nft.Concat{nft.DestinationAddress, nft.TransportProtocol, nft.DestinationPort}
	accept, tcp := nft.Verdict{Action: nft.Accept}, nft.ProtocolIs{Protocol: model.TCP}
	client := append(dialled[:3:3], nft.SourceAddress)
	inRange := nft.Concat{nft.DestinationAddress, nft.TransportProtocol, nft.PacketClass}
	rate := nft.Limit{Rate: model.Rate{Amount: 10, Burst: 30, Unit: model.PerMinute}}
	return map[string]nft.Rule{
		"CameIn":              {nft.CameIn, accept},
		"CountRefused":        {nft.CountRefused("refusals", dialled, rate.Rate)},
		"Log":                 {nft.Log{Prefix: "some", Group: 65535, Snaplen: 64}},
		"Classify":            {nft.Classify{Key: dialled, Map: "classes"}, nft.VerdictMap{Key: nft.Concat{nft.PacketClass}, Map: "lanes"}},
		"Declassify":          {nft.Declassify, accept},
		"Choose":              {nft.Choose{Slots: nft.Slots{Count: 3, First: 1}}, accept},
		"DNAT":                {nft.DNAT{Key: append(dialled[:3:3], nft.PacketClass), Map: "endpoints"}},
		"DNATHashed":          {nft.DNAT{Key: append(inRange[:3:3], nft.Slots{Scheduler: model.MaglevPort, Count: 3, First: 1}), Map: "range-endpoints", KeepPort: true}},
		"DNATInRange":         {nft.DNAT{Key: append(inRange[:3:3], nft.Slots{Scheduler: model.RoundRobin, Count: 3, First: 1}), Map: "range-port-endpoints"}},
		"Note":                {nft.Note("arrivals", nft.Concat{nft.DestinationAddress, nft.SourceAddress, nft.SourcePort, nft.DestinationPort}, time.Second), nft.Classify{Key: nft.Concat{nft.OriginalDestination, nft.OriginalSource, nft.OriginalClientPort, nft.OriginalPort}, Map: "arrivals"}, accept},
		"NoteOfGroup":         {nft.Note(nft.SharedAffinityMap, nft.Concat{nft.OriginalDestination, nft.PacketGroup, nft.OriginalSource}, time.Minute), accept},
		"Enter":               {nft.Enter("connections", nft.Concat{nft.DestinationAddress, nft.SourceAddress, nft.SourcePort, nft.DestinationPort}, time.Second), accept},
		"Forget":              {nft.Forget("clients", client)},
		"ForgetOfGroup":       {nft.Forget(nft.SharedAffinityMap, nft.Concat{nft.DestinationAddress, nft.PacketClass, nft.SourceAddress})},
		"InSet":               {nft.InSet{Key: dialled, Set: "frontends", Not: true}, accept},
		"IsAnswer":            {nft.IsAnswer, accept},
		"EndsTCP":             {nft.EndsTCP, nft.ResetsTCP, accept},
		"Known":               {nft.Known, accept},
		"Masquerade":          {nft.Masquerade},
		"NotFrom":             {nft.NotFrom{Name: "pod", ByPrefix: true}, accept},
		"NotTo":               {nft.NotTo{Name: "cni0"}, accept},
		"NotTranslated":       {nft.NotTranslated, accept},
		"OneIn":               {nft.OneIn{Of: 8}, accept},
		"OneInTurn":           {nft.OneIn{Of: 8, InTurn: true}, accept},
		"OverLimit":           {nft.OverLimit("rates", client, rate), nft.OverLimit("counts", client, nft.Limit{Connections: 20}), accept},
		"ProtocolIs":          {tcp, accept},
		"Redirect":            {tcp, nft.Redirect{Port: 10245}},
		"Refuse":              {nft.Refuse},
		"Remember":            {nft.Remember("clients", client, time.Hour)},
		"Reset":               {nft.Reset},
		"ToPort":              {nft.ToPort{Port: 10245}, accept},
		"NotClass":            {nft.NotClass{Class: nft.Admitted}, accept},
		"SourceIsLocal":       {nft.SourceIsLocal, accept},
		"SourceNotIn":         {nft.SourceNotIn{Prefix: some}, accept},
		"Verdict":             {nft.Verdict{Action: nft.Goto, Chain: "empty"}},
		"Within":              {nft.Within{Rate: rate.Rate}, accept},
		"VerdictMap":          {nft.VerdictMap{Key: dialled, Map: "verdicts"}},
		"DNATTo":              {nft.DNATTo{Address: some.Addr().Next()}},
		"SNATTo":              {nft.SNATTo{Address: some.Addr().Next()}},
		"DestinationNotLocal": {nft.DestinationNotLocal, accept},
		"IsEchoRequest":       {nft.IsEchoRequest, accept},
	}
}

// StatementTable returns a table with a chain for each of the rules, and the sets
// that they look into.
func StatementTable(f model.Family, rules map[string]nft.Rule) *nft.Table {
	frontend, endpoint := []nft.Datatype{nft.Address, nft.InetProto, nft.Port}, []nft.Datatype{nft.Address, nft.Port}
	slot := []nft.Datatype{nft.Address, nft.InetProto, nft.RangeID, nft.SlotNumber}
	t := &nft.Table{
		Family: f,
		Sets: []*nft.Set{
			{Name: "frontends", Key: frontend},
			{Name: "verdicts", Key: frontend, Data: []nft.Datatype{nft.Verdicts}},
			{Name: "classes", Key: frontend, Data: []nft.Datatype{nft.ClassID}},
			{Name: "lanes", Key: []nft.Datatype{nft.ClassID}, Data: []nft.Datatype{nft.Verdicts}},
			{Name: "endpoints", Key: append(frontend[:3:3], nft.ClassID), Data: endpoint},
			{Name: "range-endpoints", Key: slot, Data: endpoint[:1]},
			{Name: "range-port-endpoints", Key: slot, Data: endpoint},
			{Name: "clients", Key: append(frontend[:3:3], nft.Source), Data: endpoint, Dynamic: true, Size: 10},
			{Name: "arrivals", Key: []nft.Datatype{nft.Address, nft.Source, nft.ClientPort, nft.Port}, Data: []nft.Datatype{nft.ClassID}, Dynamic: true, Size: 10},
			{Name: nft.SharedAffinityMap, Key: []nft.Datatype{nft.Address, nft.ClassID, nft.Source}, Data: []nft.Datatype{nft.ClassID}, Dynamic: true, Size: 10},
			{Name: "connections", Key: []nft.Datatype{nft.Address, nft.Source, nft.ClientPort, nft.Port}, Dynamic: true, Size: 10},
			{Name: "rates", Key: append(frontend[:3:3], nft.Source), Dynamic: true, Size: 10},
			{Name: "counts", Key: append(frontend[:3:3], nft.Source), Dynamic: true, Timeless: true, Size: 10},
			{Name: "refusals", Key: frontend, Dynamic: true, Timeless: true, Size: 10},
		},
		Chains: []*nft.Chain{{Name: "empty"}},
	}
	for _, name := range slices.Sorted(maps.Keys(rules)) {
		t.Chains = append(t.Chains, &nft.Chain{Name: "with" + name, Rules: []nft.Rule{rules[name]}})
	}
	return t
}
