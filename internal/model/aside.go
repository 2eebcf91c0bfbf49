package model

import "reflect"

// aside is a Service whose present state the kernel does not take. The router
// has the last state that was good, or nothing, in its place.
type aside struct {
	wanted ServiceState // what the source says
	notice Notice
}

// Accept takes the present state of all Services as good: that is what
// [Router.SetAside] goes back to.
func (r *Router) Accept() {
	if len(r.before) > 0 {
		r.before = make(map[ServiceName]ServiceState)
	}
}

// SetAside goes back to the last good state of a Service whose present one the
// kernel does not take, and leaves the Service out if there is none, or if the
// kernel does not take that one either. That holds until the state changes or
// [Router.TryAgain] is called, and a notice says why. It returns false if the
// Service is left out already.
func (r *Router) SetAside(name ServiceName, why string) bool {
	s, served := r.services[name]
	if !served {
		return false
	}
	r.remember(name)
	a, again := r.aside[name]
	good := r.before[name]
	if again || reflect.DeepEqual(good, s.state) {
		good = ServiceState{}
	}
	if !again {
		a.wanted = s.state
	}
	becomes := "it stays as it was"
	if good.Service == nil {
		becomes = "it is not served"
	}
	a.notice = notice("Service "+name.String(), RefusedByKernel,
		"the kernel refuses its rules, so %s until the Service or its EndpointSlices change: %s", becomes, why)
	r.aside[name] = a
	r.set(name, good, nil)
	r.staleNotices = true
	r.refresh()
	return true
}

// Aside returns the number of Services that are set aside.
func (r *Router) Aside() int { return len(r.aside) }

// TryAgain brings the Services that were set aside to what the source says.
func (r *Router) TryAgain() {
	wanted := make(map[ServiceName]ServiceState, len(r.aside))
	for name, a := range r.aside {
		wanted[name] = a.wanted
	}
	clear(r.aside)
	r.staleNotices = true
	r.SetServices(wanted)
}

// stays tells whether a state is the one for which its Service was set aside.
// With another one it no longer is.
func (r *Router) stays(name ServiceName, s ServiceState) bool {
	a, ok := r.aside[name]
	if !ok {
		return false
	}
	if reflect.DeepEqual(a.wanted, s) {
		return true
	}
	delete(r.aside, name)
	r.staleNotices = true
	return false
}

// remember keeps the state of a Service, which may be the last good one, before
// it changes.
func (r *Router) remember(name ServiceName) {
	if _, known := r.before[name]; known {
		return
	}
	var state ServiceState
	if s, ok := r.services[name]; ok {
		state = s.state
	}
	r.before[name] = state
}
