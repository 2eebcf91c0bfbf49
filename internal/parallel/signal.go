package parallel

// Signal leaves a value in a channel with room for one, unless it has one: a receiver that was not ready gets it later, once.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
