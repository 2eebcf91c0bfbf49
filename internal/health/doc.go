// Package health tells others over HTTP whether this node shall get traffic:
// [Proxy] answers for the node as a whole, [Services] for each Service that
// wants traffic on nodes with endpoints of its own only.
package health
