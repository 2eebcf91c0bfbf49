package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/kube-proxy/config/v1alpha1"
)

// File is a configuration file as it was read.
type File struct {
	Path    string
	content []byte
}

// Changed tells whether the file has another content now. A file that cannot be
// read has not changed: it may be on its way.
func (f *File) Changed() bool {
	now, err := os.ReadFile(f.Path)
	return err == nil && !bytes.Equal(now, f.content)
}

// readFile reads a KubeProxyConfiguration in YAML or JSON (12.1). Fields that
// are not given keep their zero values. Unknown and repeated fields are remarks
// (12.3); everything else that is wrong is an error, which names file, line and
// field.
func readFile(path string) (*v1alpha1.KubeProxyConfiguration, *File, []Remark, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("--config: %w", err)
	}
	root, more, err := parse(content)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("%s: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	k := &v1alpha1.KubeProxyConfiguration{}
	d := decoder{file: path}
	if more {
		d.remark("only the first document of the configuration file counts", "file", path)
	}
	d.value(root, reflect.ValueOf(k).Elem(), "")
	d.checkKind(k)
	if err := errors.Join(d.problems...); err != nil {
		return nil, nil, nil, err
	}
	return k, &File{path, content}, d.remarks, nil
}

// parse returns the first document as a tree, and whether there is another one.
func parse(content []byte) (root *yaml.Node, more bool, err error) {
	if json.Valid(content) {
		// YAML has no tabs between words; strings of JSON have none either.
		content = bytes.ReplaceAll(content, []byte("\t"), []byte(" "))
	}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var first, second yaml.Node
	switch err := decoder.Decode(&first); {
	case errors.Is(err, io.EOF):
		return nil, false, errors.New("the file is empty: it must hold a " + kind)
	case err != nil:
		return nil, false, err
	}
	err = decoder.Decode(&second)
	return first.Content[0], !errors.Is(err, io.EOF), nil
}

// checkKind refuses files for other programs and other versions.
func (d *decoder) checkKind(k *v1alpha1.KubeProxyConfiguration) {
	for _, c := range []struct{ field, got, want string }{
		{"apiVersion", k.APIVersion, v1alpha1.SchemeGroupVersion.String()},
		{"kind", k.Kind, kind},
	} {
		if c.got != c.want {
			d.problems = append(d.problems, fmt.Errorf("%s: %s: %q is not known: write %s", d.file, c.field, c.got, c.want))
		}
	}
}
