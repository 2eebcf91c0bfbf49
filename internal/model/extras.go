package model

// Extras are what annotations of ours ask for beyond Kubernetes, in an object of its own
// because few Services have any. They must not be changed.
type Extras struct {
	// EndpointsFrom is the Service of a cluster whose endpoints a Service of files has
	// in addition to its own; nil: none.
	EndpointsFrom *ServiceName
	// Limits of new connections.
	Limits Limits
	// Ranges are ports in addition to those of the Service. No two of a protocol overlap,
	// and a single port is none of the Service's ports.
	Ranges []PortRange
	// Sources are the clients of all frontends of the Service, of both families (4.75).
	Sources *Sources
	// MaglevSize is one of [MaglevSizes]; zero: [DefaultMaglevSize].
	MaglevSize uint32
}

var noExtras Extras

// Extra returns the extras of a Service, never nil.
func (s *Service) Extra() *Extras {
	if s.Extras == nil {
		return &noExtras
	}
	return s.Extras
}
