// Package health answers over HTTP whether this node should get traffic: [Proxy] for
// the node as a whole, [Services] for each Service with external traffic policy Local.
package health
