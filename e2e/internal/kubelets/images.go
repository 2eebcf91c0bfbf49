package kubelets

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Names of images, besides [testImages].
const (
	pauseImage = "registry.k8s.io/pause:3.10.2"
	dnsImage   = "registry.k8s.io/coredns/coredns:v1.15.0"
	// NFTProxyImage is made as deploy/Dockerfile makes it.
	NFTProxyImage = "registry.k8s.io/nftproxy"
	NFTProxyTag   = "lab"
	// NFTProxyNextTag is of an image with one more file, for upgrades.
	NFTProxyNextTag = "lab-next"
	KubeProxyImage  = "registry.k8s.io/kube-proxy:" + KubernetesVersion
)

// buildImages makes the images that every cluster has.
func (p *Programs) buildImages(ctx context.Context, log io.Writer) error {
	fmt.Fprintln(log, "make images")
	tools, err := toolsLayer()
	if err != nil {
		return err
	}
	source, err := goCommand(ctx, filepath.Join(p.module, "tools"), "list", "-m", "-f", "{{.Dir}}", path.Clean(kubernetesPath))
	if err != nil {
		return err
	}
	of, err := testImages(filepath.Join(source, "test/utils/image/manifest.go"))
	if err != nil {
		return err
	}
	agnhostSource := filepath.Join(source, "test/images/agnhost")
	own := func(files ...file) *layer { return &layer{files: files} }
	binary := func(program, at string) file { return file{path: at, from: p.Path(program), mode: 0o755} }
	agnhost := own(binary("agnhost", "agnhost"), binary("coredns", "coredns"), file{path: "agnhost-2", link: "agnhost"},
		file{path: "localhost.crt", from: filepath.Join(agnhostSource, "porter/localhost.crt"), mode: 0o644},
		file{path: "localhost.key", from: filepath.Join(agnhostSource, "porter/localhost.key"), mode: 0o644},
		file{path: "uploads", dir: true})
	pause := image{layers: []*layer{own(binary("pause", "pause"))}, entrypoint: []string{"/pause"}}
	registry, err := pause.registry("pause", "testing")
	if err != nil {
		return err
	}
	agnhost.files = append(agnhost.files, registry...)
	testServer := image{layers: []*layer{tools, agnhost}, entrypoint: []string{"/agnhost"}, command: []string{"pause"}}
	nftproxy := own(binary("nftproxy", "usr/local/bin/nftproxy"), file{path: "usr/local/bin/kube-proxy", link: "nftproxy"})
	next := own(file{path: "next", text: "next\n", mode: 0o644})
	run := []string{"/usr/local/bin/nftproxy"}
	images := map[string]image{
		pauseImage:               pause,
		dnsImage:                 {layers: []*layer{tools, own(binary("coredns", "coredns"))}, entrypoint: []string{"/coredns"}},
		of["Agnhost"]:            testServer,
		of["AgnhostPrev"]:        testServer,
		of["GlibcDnsTesting"]:    {layers: []*layer{tools, agnhost}, command: []string{"/bin/sh"}},
		of["BusyBox"]:            {layers: []*layer{tools}, command: []string{"sh"}},
		of["DistrolessIptables"]: {layers: []*layer{tools}, command: []string{"/bin/sh"}},
		// The tests look only at its address.
		of["Nginx"]: {layers: []*layer{tools, agnhost}, entrypoint: []string{"/agnhost", "netexec", "--http-port=80"}},
		of["RegressionIssue74839"]: {layers: []*layer{own(binary("regression-issue-74839", "regression"))},
			entrypoint: []string{"/regression"}},
		NFTProxyImage + ":" + NFTProxyTag:     {layers: []*layer{nftproxy}, entrypoint: run},
		NFTProxyImage + ":" + NFTProxyNextTag: {layers: []*layer{nftproxy, next}, entrypoint: run},
		KubeProxyImage:                        {layers: []*layer{tools, own(binary("kube-proxy", "usr/local/bin/kube-proxy"))}},
	}
	return p.writeImages("images.tar", images)
}

// AddImage compiles a program of this module and makes an image of it, for the
// clusters that start afterwards.
func (p *Programs) AddImage(ctx context.Context, reference, pkg string) error {
	program := path.Base(pkg)
	if _, err := goCommand(ctx, p.module, "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(p.OwnDir, program), pkg); err != nil {
		return fmt.Errorf("build %s: %w", pkg, err)
	}
	files := &layer{files: []file{{path: program, from: filepath.Join(p.OwnDir, program), mode: 0o755}}}
	return p.writeImages(program+".tar", map[string]image{reference: {layers: []*layer{files}, entrypoint: []string{"/" + program}}})
}

// writeImages writes images to one archive.
func (p *Programs) writeImages(archive string, images map[string]image) error {
	all := map[name.Reference]v1.Image{}
	for n, i := range images {
		reference, err := name.ParseReference(n)
		if err != nil {
			return err
		}
		if all[reference], err = i.build(); err != nil {
			return fmt.Errorf("image %s: %w", n, err)
		}
	}
	archive = filepath.Join(p.OwnDir, archive)
	p.Images = append(p.Images, archive)
	return tarball.MultiRefWriteToFile(archive, all)
}

// image is what a container runs.
type image struct {
	layers              []*layer
	entrypoint, command []string
}

func (i image) build() (v1.Image, error) {
	config := v1.Config{Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LD_LIBRARY_PATH=/lib64"}, WorkingDir: "/",
		Entrypoint: i.entrypoint, Cmd: i.command}
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{Architecture: "amd64", OS: "linux", Config: config,
		RootFS: v1.RootFS{Type: "layers"}})
	if err != nil {
		return nil, err
	}
	for _, l := range i.layers {
		built, err := l.build()
		if err != nil {
			return nil, err
		}
		if img, err = mutate.AppendLayers(img, built); err != nil {
			return nil, err
		}
	}
	return img, nil
}

// file is one of a layer: a copy of one of the machine, a link, a text or a
// directory.
type file struct {
	path, from, link, text string
	dir                    bool
	mode                   int64
}

// layer is a set of files, written once.
type layer struct {
	files []file
	built v1.Layer
}

func (l *layer) build() (_ v1.Layer, err error) {
	if l.built == nil {
		content := &bytes.Buffer{}
		if err := l.write(tar.NewWriter(content)); err != nil {
			return nil, err
		}
		l.built, err = tarball.LayerFromOpener(func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(content.Bytes())), nil
		}, tarball.WithCompression(compression.None))
	}
	return l.built, err
}

func (l *layer) write(w *tar.Writer) error {
	have := map[string]bool{}
	for _, f := range l.files {
		f.path = strings.TrimPrefix(f.path, "/")
		if have[f.path] {
			continue
		}
		have[f.path] = true
		for i, c := range f.path { // the directories above it
			if dir := f.path[:i]; c == '/' && !have[dir] {
				have[dir] = true
				if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}); err != nil {
					return err
				}
			}
		}
		if err := f.write(w); err != nil {
			return fmt.Errorf("%s: %w", f.path, err)
		}
	}
	return w.Close()
}

func (f file) write(w *tar.Writer) error {
	switch {
	case f.dir:
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: f.path, Mode: 0o1777})
	case f.link != "":
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: f.path, Linkname: f.link})
	}
	content := []byte(f.text)
	if f.from != "" {
		var err error
		if content, err = os.ReadFile(f.from); err != nil {
			return err
		}
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.path, Mode: f.mode, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}

// toolsLayer has the commands that tests run in containers, from this machine.
func toolsLayer() (*layer, error) {
	l := &layer{files: []file{
		{path: "etc/passwd", mode: 0o644, text: "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"},
		{path: "etc/group", mode: 0o644, text: "root:x:0:\nnobody:x:65534:\n"},
		// Without it nft prints numbers, which kube-proxy takes for other elements than
		// its own when it starts again, and deletes them all.
		{path: "etc/protocols", mode: 0o644, text: "tcp 6 TCP\nudp 17 UDP\nsctp 132 SCTP\n"},
		{path: "etc/nsswitch.conf", mode: 0o644, text: "hosts: files dns\n"},
		{path: "etc/wgetrc", mode: 0o644, text: "tries = 1\n"}, // as busybox, whose own wget in Debian crashes with -q
		{path: "tmp", dir: true}, {path: "run", dir: true}, {path: "var/log", dir: true}, {path: "root", dir: true},
		// busybox's own shell prefers its own nc.
		{path: "bin/sh", link: "/usr/bin/dash"}, {path: "usr/bin/iperf3", link: "/usr/bin/iperf"},
	}}
	for _, command := range []string{"dash", "bash", "curl", "nc.openbsd", "dig", "host", "nslookup", "ip", "ss", "iperf", "getent",
		"timeout", "nsenter", "wget", "conntrack", "iptables", "ip6tables", "iptables-save", "iptables-restore",
		"ip6tables-save", "ip6tables-restore", "nft", "busybox"} {
		if err := l.addCommand(command); err != nil {
			return nil, err
		}
	}
	l.files = append(l.files, file{path: "usr/bin/nc", link: "nc.openbsd"})
	applets, err := exec.Command("busybox", "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("busybox --list: %w", err)
	}
	has := map[string]bool{}
	for _, f := range l.files {
		has[path.Base(f.path)] = true
	}
	for _, a := range strings.Fields(string(applets)) {
		if !has[a] {
			l.files = append(l.files, file{path: "bin/" + a, link: "/usr/bin/busybox"})
		}
	}
	return l, nil
}

// library is a line of ldd.
var library = regexp.MustCompile(`(?m)(/\S+) \(0x`)

// addCommand adds a command of this machine and the libraries that it needs.
func (l *layer) addCommand(command string) error {
	from, err := lookPath(command)
	if err != nil {
		return err
	}
	l.files = append(l.files, file{path: "usr/bin/" + command, from: from, mode: 0o755})
	// ldd fails for static programs.
	out, _ := exec.Command("ldd", from).Output()
	for _, m := range library.FindAllStringSubmatch(string(out), -1) {
		l.files = append(l.files, file{path: "lib64/" + path.Base(m[1]), from: m[1], mode: 0o755})
	}
	return nil
}

// lookPath finds a command in the directories of the system.
func lookPath(command string) (string, error) {
	for _, dir := range []string{"/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
		if found, err := filepath.EvalSymlinks(filepath.Join(dir, command)); err == nil {
			return found, nil
		} else if !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
	}
	return "", fmt.Errorf("%s is not installed; make conformance installs what it needs", command)
}
