// Package clock sets the clock of the machine, and so runs nowhere but in a
// virtual one: "make test-kernels" selects it.
package clock
