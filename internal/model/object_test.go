package model

import (
	"strings"
	"testing"
)

// TestObject: an object of a Balance names its Service also in the namespace default, which its text leaves out.
func TestObject(t *testing.T) {
	for text, want := range map[string]ServiceName{
		"Balance web": {"default", "web"}, "Balance shop/web": {"shop", "web"}, "Service default/web": {"default", "web"}, "Service shop/web": {"shop", "web"},
	} {
		o := want.ObjectAs(strings.HasPrefix(text, "Balance"))
		if name, ok := o.Service(); !ok || name != want || o.String() != text {
			t.Errorf("%s is of %s, %t; want %s of %s", o, name, ok, text, want)
		}
	}
	for o, want := range map[Object]string{Machine(): "Machine", {Kind: "Node", Name: "n1"}: "Node n1", {Kind: "Servers", Namespace: "default", Name: "pool"}: "Servers pool"} {
		if _, isService := o.Service(); isService || o.String() != want {
			t.Errorf("%s, want %s", o, want)
		}
	}
}
