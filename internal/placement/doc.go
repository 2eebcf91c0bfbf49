// Package placement places the endpoints of a service port in numbered slots, from which rules
// choose one for each connection. A slot depends on the endpoints, on the scheduler and on the
// node alone, so that all nodes and all runs agree where they have to.
package placement
