// Package source is the interface between the sources of objects and the program.
//
// A [Source] gives the Services, endpoints and Nodes that are served, and says by its
// [State] whether it can be used now. [Edited] changes the state of Services from a source,
// for health checks and draining. The packages below are, from the bottom up:
//
//   - healthcheck: a value of YAML or JSON becomes a health check
//   - convert: objects of Kubernetes become values of the model
//   - balance: a Balance becomes objects of Kubernetes
//   - files: a source that reads YAML and JSON
//   - cluster: a source that follows an API server
//   - join: both, for the address of the API servers themselves
//
// Statement numbers such as 1.33 in comments refer to docs/behaviour.md.
package source
