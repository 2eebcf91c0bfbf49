package control

// For tests of the package from outside, with the client.
const (
	MaxPath   = maxPath
	StartTime = startTime
	UnknownID = unknownID
)
