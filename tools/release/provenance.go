package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	predicateType = "https://slsa.dev/provenance/v1"
	// workflowBuild is the type of builds by GitHub's workflows, which defines the parameters.
	workflowBuild = "https://slsa-framework.github.io/github-actions-buildtypes/workflow/v1"
	// localBuild is the type of other builds.
	localBuild = repository + "/blob/main/docs/verify.md#local-builds"
	checksums  = "SHA256SUMS"
)

// provenance returns the in-toto statement about the files of a release, in JSON.
func provenance(dist string, getenv func(string) string) (string, error) {
	subjects, err := readSubjects(filepath.Join(dist, checksums))
	if err != nil {
		return "", fmt.Errorf("read the checksums: %w", err)
	}
	i := slices.IndexFunc(subjects, func(s *intoto.ResourceDescriptor) bool { return strings.HasPrefix(s.Name, programPrefix) })
	if i < 0 {
		return "", fmt.Errorf("%s names no program", checksums)
	}
	commit, goVersion, err := revision(filepath.Join(dist, subjects[i].Name))
	if err != nil {
		return "", err
	}
	p, err := localProvenance()
	if getenv("GITHUB_ACTIONS") == "true" {
		p, err = workflowProvenance(commit, getenv)
	}
	if err != nil {
		return "", err
	}
	// The modules are in go.sum of the commit, and in the bills of materials.
	p.BuildDefinition.ResolvedDependencies = []*intoto.ResourceDescriptor{
		{Uri: "git+" + source(getenv), Digest: map[string]string{"gitCommit": commit}},
		{Uri: "pkg:generic/go@" + goVersion},
	}
	if err := p.Validate(); err != nil {
		return "", err
	}
	predicate, err := toStruct(p)
	if err != nil {
		return "", err
	}
	s := &intoto.Statement{Type: intoto.StatementTypeUri, Subject: subjects, PredicateType: predicateType, Predicate: predicate}
	if err := s.Validate(); err != nil {
		return "", err
	}
	return format(s)
}

// readSubjects returns the files of a list of checksums.
func readSubjects(path string) ([]*intoto.ResourceDescriptor, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []*intoto.ResourceDescriptor
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		sum, name, ok := strings.Cut(lines.Text(), "  ")
		if !ok {
			return nil, fmt.Errorf("%s: %q is not a checksum and a name", path, lines.Text())
		}
		out = append(out, &intoto.ResourceDescriptor{Name: name, Digest: map[string]string{"sha256": sum}})
	}
	return out, lines.Err()
}

// workflowProvenance describes a build of a workflow by what GitHub says about it.
func workflowProvenance(commit string, getenv func(string) string) (*slsa.Provenance, error) {
	if got := getenv("GITHUB_SHA"); got != commit {
		return nil, fmt.Errorf("the programs are of commit %s, and the workflow runs for %q", commit, got)
	}
	home := getenv("GITHUB_SERVER_URL") + "/" + getenv("GITHUB_REPOSITORY")
	workflow, ref, _ := strings.Cut(strings.TrimPrefix(getenv("GITHUB_WORKFLOW_REF"), getenv("GITHUB_REPOSITORY")+"/"), "@")
	external, err := structpb.NewStruct(map[string]any{"workflow": map[string]any{"repository": home, "path": workflow, "ref": ref}})
	if err != nil {
		return nil, err
	}
	internal, err := structpb.NewStruct(map[string]any{"github": map[string]any{
		"event_name": getenv("GITHUB_EVENT_NAME"), "repository_id": getenv("GITHUB_REPOSITORY_ID"),
		"repository_owner_id": getenv("GITHUB_REPOSITORY_OWNER_ID"), "runner_environment": getenv("RUNNER_ENVIRONMENT")}})
	if err != nil {
		return nil, err
	}
	return &slsa.Provenance{
		BuildDefinition: &slsa.BuildDefinition{BuildType: workflowBuild, ExternalParameters: external, InternalParameters: internal},
		RunDetails: &slsa.RunDetails{
			Builder:  &slsa.Builder{Id: getenv("GITHUB_SERVER_URL") + "/" + getenv("GITHUB_WORKFLOW_REF")},
			Metadata: &slsa.BuildMetadata{InvocationId: home + "/actions/runs/" + getenv("GITHUB_RUN_ID") + "/attempts/" + getenv("GITHUB_RUN_ATTEMPT")},
		},
	}, nil
}

// localProvenance describes a build on any machine, by scripts/release.
func localProvenance() (*slsa.Provenance, error) {
	external, err := structpb.NewStruct(map[string]any{"repository": repository, "path": "scripts/release"})
	if err != nil {
		return nil, err
	}
	return &slsa.Provenance{
		BuildDefinition: &slsa.BuildDefinition{BuildType: localBuild, ExternalParameters: external},
		RunDetails:      &slsa.RunDetails{Builder: &slsa.Builder{Id: localBuild}},
	}, nil
}

// source returns the address of the source, with the ref that a workflow runs for.
func source(getenv func(string) string) string {
	if getenv("GITHUB_ACTIONS") != "true" {
		return repository
	}
	return getenv("GITHUB_SERVER_URL") + "/" + getenv("GITHUB_REPOSITORY") + "@" + getenv("GITHUB_REF")
}

func toStruct(m proto.Message) (*structpb.Struct, error) {
	text, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	s := new(structpb.Struct)
	return s, protojson.Unmarshal(text, s)
}

// format returns a message in JSON. The spaces that protojson writes change between programs.
func format(m proto.Message) (string, error) {
	text, err := protojson.Marshal(m)
	if err != nil {
		return "", err
	}
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		return "", err
	}
	text, err = json.MarshalIndent(value, "", "  ")
	return string(text), err
}
