package worlds

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/source/files"
)

// Numbers of objects that a world may have.
const (
	maxServices = 8
	maxBalances = 6
)

// World is the input of a node: objects and flags. [World.Next] changes it.
type World struct {
	dice
	Services map[int]*Service
	Balances map[int]*Balance
	Flags    Flags
}

// New draws a world.
func New(seed uint64) *World {
	w := &World{dice: newDice(seed), Services: make(map[int]*Service), Balances: make(map[int]*Balance)}
	for _, n := range w.Perm(maxServices)[:3+w.IntN(5)] {
		w.Services[n+1] = w.service(n + 1)
	}
	for _, n := range w.Perm(maxBalances)[:1+w.IntN(5)] {
		w.Balances[n] = w.validBalance(n)
	}
	w.Flags = w.flags()
	return w
}

// validBalance draws a Balance until one is valid: not all fields go together.
func (w *World) validBalance(n int) *Balance {
	for {
		b := w.balance(n)
		text, err := b.Text()
		if err != nil {
			panic(err) // values that JSON cannot have
		}
		if _, err := (&files.Reader{Paths: []string{"-"}, Stdin: bytes.NewReader(text)}).Load(); err == nil {
			return b
		}
	}
}

// Files returns the texts of all files, by their names.
func (w *World) Files() (map[string][]byte, error) {
	out := make(map[string][]byte)
	add := func(name string, object any) (err error) {
		out[name], err = json.Marshal(object)
		return err
	}
	if err := add("node.json", node()); err != nil {
		return nil, err
	}
	for n, s := range w.Services {
		list := []any{s.Service}
		for _, slice := range s.Slices {
			list = append(list, slice)
		}
		if err := add(fmt.Sprintf("s%d.json", n), map[string]any{"apiVersion": "v1", "kind": "List", "items": list}); err != nil {
			return nil, err
		}
	}
	for n, b := range w.Balances {
		if err := add(fmt.Sprintf("b%d.json", n), b.fields); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func node() *corev1.Node {
	return &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: NodeName, Labels: map[string]string{corev1.LabelTopologyZone: zones[0]}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: Node.IPv4.String()}, {Type: corev1.NodeInternalIP, Address: Node.IPv6.String()},
		}},
	}
}

// edit changes one to four objects.
func (w *World) edit() {
	for range 1 + w.IntN(4) {
		if w.isIn(60) {
			w.editService(1 + w.IntN(maxServices))
		} else {
			w.editBalance(w.IntN(maxBalances))
		}
	}
}

func (w *World) editService(n int) {
	s := w.Services[n]
	switch {
	case s != nil && w.isIn(25):
		delete(w.Services, n)
	case s != nil && w.isIn(50): // endpoints come and go more often than settings change
		w.addSlices(s)
	default:
		w.Services[n] = w.service(n)
	}
}

func (w *World) editBalance(n int) {
	if w.Balances[n] != nil && w.isIn(25) {
		delete(w.Balances, n)
		return
	}
	w.Balances[n] = w.validBalance(n)
}

// sorted returns the values of a map by their keys, so that a seed leads to the same choices.
func sorted[V any](m map[int]V) (out []V) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[key])
	}
	return out
}
