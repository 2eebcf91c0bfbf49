package proof

import (
	"encoding/json"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Story is inputs that follow each other.
type Story struct {
	Name   string
	Phases []Phase
	// See [Kernel].
	Between, Follows bool
}

// Phase is an input.
type Phase struct {
	Snapshot *model.Snapshot
	Config   model.Config
	Others   []Interval // that another program has added before
}

// place is what JSON leaves out of a host.
type place struct {
	Node, Zone         string
	ForZones, ForNodes []string
}

type stored struct {
	Snapshot *model.Snapshot
	Config   model.Config
	Others   []Interval
	Places   [][]place
}

// MarshalJSON writes the places of hosts, too.
func (p Phase) MarshalJSON() ([]byte, error) {
	out := stored{p.Snapshot, p.Config, p.Others, make([][]place, len(p.Snapshot.Slices))}
	for i, s := range p.Snapshot.Slices {
		for _, h := range s.Hosts {
			out.Places[i] = append(out.Places[i], place{h.Place.Node(), h.Place.Zone(), h.Place.ForZones(), h.Place.ForNodes()})
		}
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (p *Phase) UnmarshalJSON(data []byte) error {
	var in stored
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	p.Snapshot, p.Config, p.Others = in.Snapshot, in.Config, in.Others
	for i, s := range p.Snapshot.Slices {
		for j := range s.Hosts {
			at := in.Places[i][j]
			s.Hosts[j].Place = model.NewPlace(at.Node, at.Zone, at.ForZones, at.ForNodes)
		}
	}
	return nil
}
