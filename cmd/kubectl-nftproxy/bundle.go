package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/bundle"
	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/cli/common"
	"github.com/nftproxy/nftproxy/internal/fleet"
	"github.com/nftproxy/nftproxy/internal/kubectl"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

type fleetBundleOptions struct {
	fleetOptions
	common.Bundle
	fleet *fleet.Fleet
}

func bundleCommand(a access) *cobra.Command {
	var o fleetBundleOptions
	c := &cobra.Command{
		Use:   "bundle [NODE...]",
		Short: "Collect what a support case needs in one file",
		Long: `Write one archive (tar.gz) about all nodes, or the nodes that are named: what "cluster
status" says, and of each node, the worst first, the status and other documents, Services
with problems, metrics, settings, the rules and the log. With it come the Node objects, the
DaemonSets of nftproxy with their ConfigMaps, and the Services with problems with their
EndpointSlices.

Secrets are not read. Passwords, keys and tokens are removed from every file. Addresses and
names stay, and so does free text, such as descriptions of Services and messages of health
checks: read the archive before you send it.

The size is limited. contents.txt in the archive lists its files, which of them are cut,
and which are missing, with the reason. docs/kubectl.md lists the permissions.

Exit code: 0 written, also if files are missing; 2 error.`,
		Example: `  kubectl nftproxy bundle
  kubectl nftproxy bundle node-7 --file case-17.tar.gz`,
		RunE: func(c *cobra.Command, args []string) error { return o.run(c, args) },
	}
	o.fleetOptions.addFlags(c, a)
	o.Timeout = 30 * time.Second // for several documents
	c.Flags().Lookup("timeout").DefValue = o.Timeout.String()
	o.Bundle.AddFlags(c)
	return c
}

// clusterGroup is the directory of the archive about the cluster.
const clusterGroup = "cluster"

func (o *fleetBundleOptions) run(c *cobra.Command, nodes []string) (err error) {
	o.nodes = nodes
	if o.fleet, err = o.open(); err != nil {
		return err
	}
	_, stop := cli.EndAtSignal(c)
	defer stop()
	return o.Write(c, version, "About nftproxy in a cluster.", func(a *bundle.Archive) error { return o.fill(c, a) })
}

func (o *fleetBundleOptions) fill(c *cobra.Command, a *bundle.Archive) error {
	m, err := o.members(c, o.fleet)
	if err != nil {
		return err
	}
	r, err := judged(c, o.fleet, &m)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", " ")
	a.Add(clusterGroup, "status.json", text, err)
	o.addObjects(c, a, r)
	rank := make(map[string]int)
	for i := range r.Nodes {
		rank[r.Nodes[i].Name] = i
	}
	slices.SortStableFunc(m.agents, func(a, b fleet.Agent) int { return cmp.Compare(rank[a.Node], rank[b.Node]) }) // the worst first
	o.addNodes(c, a, m.agents)
	return c.Context().Err()
}

// addNodes adds what agents answer, and their logs, as many at a time as are asked at the same
// time: answers of all nodes would need much memory.
func (o *fleetBundleOptions) addNodes(c *cobra.Command, a *bundle.Archive, agents []fleet.Agent) {
	done := 0
	for batch := range slices.Chunk(agents, o.Parallel) {
		if a.Full() {
			for i := range batch {
				a.Lack("nodes/"+batch[i].Node, "status.json", errors.New("the archive is full: --max-size, or name nodes"))
			}
			continue
		}
		answers := fleet.Ask(c.Context(), o.fleet, batch, func(n int) { progress(c, len(agents))(done + n) }, common.Collect)
		done += len(batch)
		for i := range answers {
			group := "nodes/" + answers[i].Agent.Node
			if err := answers[i].Err; err != nil {
				a.Lack(group, "status.json", err)
			} else {
				answers[i].Document.Add(a, group)
			}
			o.addLog(c.Context(), a, group, &answers[i].Agent)
		}
	}
}

// addLog adds the log of a pod, and that of its container before.
func (o *fleetBundleOptions) addLog(ctx context.Context, a *bundle.Archive, group string, agent *fleet.Agent) {
	for _, l := range []struct{ file, previous string }{{"log.txt", "false"}, {"log-before.txt", "true"}} {
		content, err := o.fleet.API.Get().AbsPath("/api/v1/namespaces", agent.Namespace, "pods", agent.Pod, "log").
			Param("tailLines", common.LogLines).Param("limitBytes", strconv.Itoa(o.NodeSize<<19)).Param("timestamps", "true").Param("previous", l.previous).DoRaw(ctx)
		if err != nil && l.previous == "true" {
			continue // most containers are the first of their pod
		} else if err != nil {
			err = fmt.Errorf("log of pod %s/%s: %w", agent.Namespace, agent.Pod, err)
		}
		a.Add(group, l.file, content, err)
	}
}

// maxObjects is how many Services with problems are in an archive.
const maxObjects = 100

func (o *fleetBundleOptions) addObjects(c *cobra.Command, a *bundle.Archive, r *fleet.Report) {
	cli.ShowProgress(c, "reading objects")
	ctx := c.Context()
	o.addList(ctx, a, "nodes.json", "Node", kubectl.Query{Path: "/api/v1/nodes", Options: map[string]string{"labelSelector": o.labels}})
	for _, m := range o.addList(ctx, a, "daemonsets.json", "DaemonSet", kubectl.Query{Path: "/apis/apps/v1/daemonsets", Options: map[string]string{"labelSelector": o.Pods}}) {
		for _, path := range configMapsOf(m) {
			o.addObject(ctx, a, "configmap-"+path[strings.LastIndexByte(path, '/')+1:]+".json", "ConfigMap", path)
		}
	}
	for i, s := range servicesOf(r) {
		if i == maxObjects {
			break
		}
		name := "objects/" + s.Path()
		o.addObject(ctx, a, name+".json", "Service", "/api/v1/namespaces/"+s.Namespace()+"/services/"+s.Name())
		o.addList(ctx, a, name+"-slices.json", "EndpointSlice", kubectl.Query{
			Path: "/apis/discovery.k8s.io/v1/namespaces/" + s.Namespace() + "/endpointslices", Options: map[string]string{"labelSelector": "kubernetes.io/service-name=" + s.Name()},
		})
	}
}

func servicesOf(r *fleet.Report) []bundle.Subject {
	var all api.Status
	for i := range r.Services {
		all.Problems = append(all.Problems, r.Services[i].Problem)
	}
	return common.Troubled(&all)
}

// configMapsOf returns the paths of the ConfigMaps that the pods of a DaemonSet mount.
func configMapsOf(object map[string]any) (paths []string) {
	namespace, _, _ := unstructured.NestedString(object, "metadata", "namespace")
	volumes, _, _ := unstructured.NestedSlice(object, "spec", "template", "spec", "volumes")
	for _, v := range volumes {
		volume, _ := v.(map[string]any)
		if name, found, _ := unstructured.NestedString(volume, "configMap", "name"); found {
			paths = append(paths, "/api/v1/namespaces/"+namespace+"/configmaps/"+name)
		}
	}
	return paths
}

func (o *fleetBundleOptions) addObject(ctx context.Context, a *bundle.Archive, file, kind, path string) {
	var object map[string]any
	err := kubectl.Answer(o.fleet.API.Get().AbsPath(path).SetHeader("Accept", kubectl.JSON).Do(ctx), &object)
	var content []byte
	if err == nil {
		content, err = bundle.Object(kind, object)
	}
	a.Add(clusterGroup, file, content, err)
}

func (o *fleetBundleOptions) addList(ctx context.Context, a *bundle.Archive, file, kind string, q kubectl.Query) (all []map[string]any) {
	_, err := kubectl.List(ctx, o.fleet.API, kind+" objects", q, func(page []map[string]any) { all = append(all, page...) })
	out := make([]json.RawMessage, 0, len(all))
	for _, object := range all {
		name, _, _ := unstructured.NestedString(object, "metadata", "name")
		if kind == "Node" && len(o.nodes) > 0 && !slices.Contains(o.nodes, name) {
			continue
		}
		content, failed := bundle.Object(kind, object)
		err = errors.Join(err, failed)
		out = append(out, content)
	}
	content, failed := json.MarshalIndent(out, "", " ")
	if err = errors.Join(err, failed); err != nil {
		err = errors.New(terminal.Printable(err.Error()))
	}
	a.Add(clusterGroup, file, content, err)
	return all
}
