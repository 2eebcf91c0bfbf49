// Package source turns Kubernetes objects into the model.
//
// It has three parts. The Convert functions take objects of the Kubernetes API
// types, wherever they come from, and return model values together with a
// [manifest.FieldError] for each field that is wrong; a wrong field never costs the rest
// of the object (1.36). [Files] reads objects from YAML and JSON files through the
// package manifest and reports all of their problems together; [Watcher] reports
// changes of the files. [cluster.Cluster] follows an API server and keeps only the model
// values of its objects. Both sources implement [Source]: a Cluster, and files
// through [Follow]. Their [State] reports whether they can be used now. [join.Joined] is
// both, for the address of the API servers themselves: its client reaches them through
// a [cluster.Dialer], which does not depend on the rules.
//
// Files are also reviewed as a whole: objects that are valid and most likely do not
// do together what their author expects have warnings (1.37).
//
// Annotations under nftproxy.dev/ say what Kubernetes has no field for: see
// annotations.go.
//
// Statement numbers such as 1.33 in comments refer to docs/behaviour.md.
package source
