// Package source turns Kubernetes objects into the model.
//
// A [Source] gives the Services, endpoints and Nodes that are served, and says by its
// [State] whether it can be used now. The packages below it are sources: files reads YAML and
// JSON, cluster follows an API server, and join is both, for the address of the API servers
// themselves. [Edited] changes what a source says about Services, for health checks and
// draining.
//
// The Convert functions take objects of the Kubernetes API types, wherever they come
// from, and return model values together with a [manifest.FieldError] for each field that
// is wrong; a wrong field never costs the rest of the object (1.36).
//
// Annotations under nftproxy.dev/ say what Kubernetes has no field for: see
// annotations.go.
//
// Statement numbers such as 1.33 in comments refer to docs/behaviour.md.
package source
