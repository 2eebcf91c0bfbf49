package agent

// Observe adds observers of every sync, which are told in this order, before
// anything else happens. It comes before Run.
func (a *Agent) Observe(observers ...func(*Sync)) { a.Observers = append(a.Observers, observers...) }
