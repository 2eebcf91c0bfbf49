package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/internal/atomicfile"
	"github.com/nftproxy/nftproxy/internal/manifest"
)

// File is a configuration file as it was read.
type File struct {
	Path    string
	content []byte
}

// Changed reports whether the content of the file differs now. A file that cannot
// be read has not changed: it may be about to be replaced.
func (f *File) Changed() bool {
	now, err := atomicfile.Read(f.Path)
	return err == nil && !bytes.Equal(now, f.content)
}

// readFile reads a KubeProxyConfiguration in YAML or JSON (12.1). Fields that
// are not given keep their zero values. Unknown and repeated fields are remarks
// (12.3); everything else that is wrong is an error, which names file, line and
// field.
func readFile(path string) (*v1alpha1.KubeProxyConfiguration, *File, []Remark, error) {
	content, err := atomicfile.Read(path)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("--config: %w", err)
	}
	object, more, err := parse(path, content)
	if err != nil {
		return nil, nil, nil, err
	}
	var remarks []Remark
	if more {
		remarks = append(remarks, Remark{"only the first document of the configuration file counts", []any{"file", path}})
	}
	k := &v1alpha1.KubeProxyConfiguration{}
	var problems []error
	for _, p := range object.Decode(k) {
		f := p.Err.(*manifest.FieldError)
		at := []any{"file", path, "line", p.Line, "field", f.Field}
		switch {
		case strings.HasPrefix(f.Problem, manifest.UnknownField):
			remarks = append(remarks, Remark{"unknown field in the configuration file has no effect: check its spelling", at})
		case f.Problem == manifest.GivenTwice:
			remarks = append(remarks, Remark{"field is given twice in the configuration file: the last one counts", at})
		default:
			problems = append(problems, p)
		}
	}
	if err := errors.Join(append(problems, checkKind(object)...)...); err != nil {
		return nil, nil, nil, err
	}
	return k, &File{path, content}, remarks, nil
}

// parse returns the first document, and whether there is another one.
func parse(path string, content []byte) (o *manifest.Object, more bool, err error) {
	docs, err := manifest.Split(path, content)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", path, err)
	}
	if len(docs) > 0 {
		docs[0].Convert, docs[0].Document = yaml.YAMLToJSON, 0 // as kube-proxy does
		switch o, problem := docs[0].Parse(); {
		case problem != nil:
			return nil, false, problem
		case o != nil:
			return o, len(docs) > 1, nil
		}
	}
	return nil, false, fmt.Errorf("%s: the file is empty: it must hold a %s", path, kind)
}

// checkKind refuses files for other programs and other versions.
func checkKind(o *manifest.Object) (problems []error) {
	name, version := o.Type()
	for _, c := range []struct{ field, got, want string }{
		{"apiVersion", version, v1alpha1.SchemeGroupVersion.String()},
		{"kind", name, kind},
	} {
		if c.got != c.want {
			problems = append(problems, o.Error(&manifest.FieldError{Field: c.field, Value: manifest.Quote(c.got), Problem: "is not known: write " + c.want}))
		}
	}
	return problems
}
