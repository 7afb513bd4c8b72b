// Judges objects as a kube-apiserver does, with its own packages. This made the *.jsonl files beside
// it and those of perennial-api. To judge more cases, in an empty directory:
//
//	go mod init judge && cp …/judge.go main.go && go get k8s.io/apiextensions-apiserver@v0.36.0 && go mod tidy
//	go run . CRD.yaml < CASES.jsonl
//
// A case is a line {"object": …, "old": …}, old only for an update. The answer adds what was refused, sorted, and
// what would have been stored. What the server says about metadata is left out.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

type typer struct{}

func (typer) ObjectKinds(o runtime.Object) ([]schema.GroupVersionKind, bool, error) {
	return nil, false, nil
}
func (typer) Recognizes(gvk schema.GroupVersionKind) bool { return true }

func main() {
	data, err := os.ReadFile(os.Args[1])
	must(err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	must(yaml.UnmarshalStrict(data, crd))
	apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
	internal := &apiextensions.CustomResourceDefinition{}
	must(apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, internal, nil))
	internal.Status.StoredVersions = []string{crd.Spec.Versions[0].Name}
	for _, e := range crdvalidation.ValidateCustomResourceDefinition(context.Background(), internal) {
		fmt.Fprintln(os.Stderr, "CRD:", e)
	}
	v, err := apiextensions.GetSchemaForVersion(internal, crd.Spec.Versions[0].Name)
	must(err)
	s, err := structuralschema.NewStructural(v.OpenAPIV3Schema)
	must(err)
	sv, _, err := validation.NewSchemaValidator(v.OpenAPIV3Schema)
	must(err)
	gvk := schema.GroupVersionKind{Group: crd.Spec.Group, Version: crd.Spec.Versions[0].Name, Kind: crd.Spec.Names.Kind}
	st := customresource.NewStrategy(typer{}, crd.Spec.Scope == "Namespaced", gvk, sv, nil, s, nil, nil, nil)
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 1<<20), 1<<24)
	for in.Scan() {
		var pair struct {
			Object map[string]interface{} `json:"object"`
			Old    map[string]interface{} `json:"old"`
		}
		must(utiljson.Unmarshal(in.Bytes(), &pair))
		case_ := map[string]interface{}{}
		must(utiljson.Unmarshal(in.Bytes(), &case_))
		prep := func(o map[string]interface{}) []string {
			defaulting.PruneNonNullableNullsWithoutDefaults(o, s)
			defaulting.Default(o, s)
			return pruning.PruneWithOptions(o, s, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
		}
		out := []string{}
		for _, u := range prep(pair.Object) {
			out = append(out, fmt.Sprintf("unknown field %q", u))
		}
		u := &unstructured.Unstructured{Object: pair.Object}
		if pair.Old != nil {
			prep(pair.Old)
			o := &unstructured.Unstructured{Object: pair.Old}
			o.SetResourceVersion("1")
			u.SetResourceVersion("1")
			for _, e := range st.ValidateUpdate(context.Background(), u, o) {
				out = append(out, e.Error())
			}
		} else {
			for _, e := range st.Validate(context.Background(), u) {
				out = append(out, e.Error())
			}
		}
		out = slices.DeleteFunc(out, func(e string) bool { return strings.HasPrefix(e, "metadata.") })
		sort.Strings(out)
		unstructured.RemoveNestedField(u.Object, "metadata", "resourceVersion")
		case_["errors"], case_["stored"] = out, u.Object
		b, _ := json.Marshal(case_)
		fmt.Println(string(b))
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
