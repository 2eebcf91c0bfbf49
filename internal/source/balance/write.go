package balance

import (
	"fmt"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/internal/manifest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/yamltext"
)

// Text returns b as a document for people to edit: the fields that are given, in the order
// of the struct, each on a line of its own, and a line for each backend.
func (b *Balance) Text() (string, error) { return formatDocument(reflect.ValueOf(b).Elem()) }

// Text returns p as a document, in the form of those of [Balance.Text].
func (p *Pool) Text() (string, error) { return formatDocument(reflect.ValueOf(p).Elem()) }

func formatDocument(v reflect.Value) (string, error) {
	var out strings.Builder
	for _, f := range reflect.VisibleFields(v.Type()) {
		if f.Anonymous {
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		field := v.FieldByIndex(f.Index)
		value := field.Interface()
		switch list := value.(type) {
		case manifest.List[Backend]:
			for i, s := range list {
				var form any = s
				if s == (Backend{Address: s.Address}) {
					form = s.Address
				}
				text, err := yamltext.Flow(form)
				if err != nil {
					return "", fmt.Errorf("%s[%d]: %w", name, i, err)
				}
				if i == 0 {
					fmt.Fprintf(&out, "%s:\n", name)
				}
				fmt.Fprintf(&out, "- %s\n", text)
			}
			continue
		case manifest.List[string]:
			if len(list) == 1 {
				value = list[0]
			}
		case *metav1.Duration:
			if list != nil {
				value = model.DurationText(list.Duration)
			}
		}
		if field.IsZero() && (options == "omitempty" || field.Kind() == reflect.Slice) {
			continue
		}
		text, err := yamltext.Flow(value)
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		fmt.Fprintf(&out, "%s: %s\n", name, text)
	}
	return out.String(), nil
}

// Rest is a Balance with all that it has from others, which Kubernetes has no objects for.
type Rest struct {
	*Balance
	Fields []string // that Kubernetes has nothing for
}

// rest returns the Balance as it is. It has no fields if objects say the same.
func (e *expander) rest() *Rest {
	r := &Rest{Balance: e.Balance}
	for _, f := range []struct {
		name string
		is   bool
	}{
		{"interfaces in listen", len(e.listeners) > 0}, {"names in backends", len(e.names) > 0},
		{setting.Relay.Field, e.values.Relay != model.NoRelay}, {setting.Announce.Field, e.values.Announce != ""},
		{setting.MasqueradeFrom.Field, len(e.values.MasqueradeFrom) > 0},
		{setting.Affinity.Field + " for several ports", e.values.Affinity > 0 && len(e.service.Spec.Ports)+len(e.values.Ranges) > 1},
	} {
		if f.is {
			r.Fields = append(r.Fields, f.name)
		}
	}
	return r
}

// Text returns the Balance as a document, with a comment.
func (r *Rest) Text() (string, error) {
	text, err := r.Balance.Text()
	return "# A Balance, because Kubernetes has no objects with " + strings.Join(r.Fields, " and ") + ".\n" + text, err
}
