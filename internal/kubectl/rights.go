package kubectl

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"
)

// Right is a permission in all namespaces. Resource may have a subresource, such as "pods/log".
type Right struct{ Verb, Group, Resource string }

// Permitted returns an error that names the permissions that are missing, and which file has a role
// with them. If the API server does not say, requests will show it.
func Permitted(ctx context.Context, api rest.Interface, rights []Right, role string) error {
	var lacking []string
	for _, r := range rights {
		resource, sub, _ := strings.Cut(r.Resource, "/")
		review := map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": map[string]any{
			"resourceAttributes": map[string]string{"verb": r.Verb, "group": r.Group, "resource": resource, "subresource": sub}}}
		body, err := json.Marshal(review)
		if err != nil {
			return err
		}
		var answer struct{ Status *struct{ Allowed bool } }
		err = Answer(api.Verb(http.MethodPost).AbsPath("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").
			SetHeader("Content-Type", JSON).SetHeader("Accept", JSON).Body(body).Do(ctx), &answer)
		if err == nil && answer.Status != nil && !answer.Status.Allowed {
			text := r.Verb + " " + r.Resource
			if r.Group != "" {
				text += "." + r.Group
			}
			lacking = append(lacking, text)
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	return fmt.Errorf("permissions are missing: %s; the ClusterRole nftproxy-%s in deploy/kubectl/%s.yaml has them", strings.Join(lacking, ", "), role, role)
}
