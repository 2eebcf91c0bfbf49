package testbed

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// Store writes objects to etcd as the API server stores them: a hundred thousand
// Services in minutes, for which the API server takes an hour on two busy processors.
// It neither validates objects nor sets their defaults. It is safe for concurrent use.
type Store struct{ client http.Client }

// NewStore returns the store of a cluster.
func (c *Cluster) NewStore() *Store {
	return &Store{http.Client{Transport: &http.Transport{DialContext: c.Node.DialContext, MaxIdleConnsPerHost: Writers}}}
}

// storeRequest is an operation of a transaction, in etcd's JSON.
type storeRequest struct {
	Put storePut `json:"requestPut"`
}

type storePut struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

// Put writes objects in one transaction, by their paths below /registry. With one of
// each kind, every object gets a revision of its own, as from the API server.
func (s *Store) Put(objects map[string]runtime.Object) error {
	var all []storeRequest
	for path, o := range objects {
		kinds, _, err := scheme.Scheme.ObjectKinds(o)
		if err != nil {
			return fmt.Errorf("encode %s: %w", path, err)
		}
		o.GetObjectKind().SetGroupVersionKind(kinds[0])
		var value bytes.Buffer
		if err := protobuf.NewSerializer(nil, nil).Encode(o, &value); err != nil {
			return fmt.Errorf("encode %s: %w", path, err)
		}
		all = append(all, storeRequest{storePut{[]byte("/registry/" + path), value.Bytes()}})
	}
	body, err := json.Marshal(map[string][]storeRequest{"success": all})
	if err != nil {
		return err
	}
	r, err := s.client.Post(EtcdURL+"/v3/kv/txn", "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	answer, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("etcd: %s: %s", r.Status, answer)
	}
	return err
}
