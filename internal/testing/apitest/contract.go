package apitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
)

// Contract is an OpenAPI 3.1 document to compare exchanges with. It is safe for concurrent use.
type Contract struct {
	Document *openapi3.T

	routes   []*route
	anywhere map[string]*value // headers of every answer
	schemas  schemas
}

type route struct {
	template   string
	segments   []string // {key} stands for any
	optional   bool     // a server need not have it
	operations map[string]*operation
}

type operation struct {
	name       string // such as POST /token
	role       string // that a caller needs, as x-coatcheck-role says
	parameters []parameter
	anyQuery   bool
	body       *body
	answers    map[int]*answer
}

type parameter struct {
	name, in string
	required bool
	value    *value
}

type body struct {
	required bool
	contents map[string]*value // by media type, as it is written
}

type answer struct {
	headers  map[string]header // by canonical name
	contents map[string]*value
}

type header struct {
	required bool
	value    *value
}

// value is a schema, by where it stands in the document.
type value struct {
	at     string // JSON pointer
	schema *openapi3.Schema
	set    *schemas
}

// Load reads a document and closes its answers, as Closed does. Its own test checks that it is a
// document of OpenAPI 3.1.
func Load(text []byte) (*Contract, error) {
	text, err := Closed(text)
	if err != nil {
		return nil, err
	}
	document, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return nil, fmt.Errorf("apitest: %w", err)
	}
	c := &Contract{Document: document, anywhere: map[string]*value{}}
	if err := c.schemas.read(text); err != nil {
		return nil, err
	}
	for template, item := range document.Paths.Map() {
		c.routes = append(c.routes, c.routeOf(template, item))
	}
	// a brace sorts after letters: what is fixed comes last
	slices.SortFunc(c.routes, func(a, b *route) int { return strings.Compare(b.template, a.template) })
	slices.Reverse(c.routes)
	return c, c.readAnywhere()
}

// readAnywhere reads the headers that every answer can have, which OpenAPI has no words for.
func (c *Contract) readAnywhere() error {
	text, err := json.Marshal(c.Document.Extensions["x-coatcheck-headers"])
	if err != nil {
		return fmt.Errorf("apitest: %w", err)
	}
	headers := map[string]struct {
		Schema *openapi3.Schema `json:"schema"`
	}{}
	if err := json.Unmarshal(text, &headers); err != nil {
		return fmt.Errorf("apitest: %w", err)
	}
	for name, header := range headers {
		c.anywhere[http.CanonicalHeaderKey(name)] = c.value("/x-coatcheck-headers/"+escaped(name)+"/schema", "", header.Schema)
	}
	return nil
}

// Roles lists all that can be asked for, such as POST /token, and the role that each needs.
func (c *Contract) Roles() map[string]string {
	roles := map[string]string{}
	for _, r := range c.routes {
		for method, o := range r.operations {
			roles[method+" "+r.template] = o.role
		}
	}
	return roles
}

func (c *Contract) routeOf(template string, item *openapi3.PathItem) *route {
	r := &route{template: template, segments: strings.Split(template, "/"), operations: map[string]*operation{}}
	_, r.optional = item.Extensions["x-coatcheck-when"]
	for method, described := range item.Operations() {
		at := "/paths/" + escaped(template) + "/" + strings.ToLower(method)
		role, _ := described.Extensions["x-coatcheck-role"].(string)
		o := &operation{name: method + " " + template, role: role,
			anyQuery: described.Extensions["x-coatcheck-query"] == "any", answers: map[int]*answer{}}
		o.parameters = append(c.parameters("/paths/"+escaped(template), item.Parameters), c.parameters(at, described.Parameters)...)
		if described.RequestBody != nil {
			o.body = &body{described.RequestBody.Value.Required,
				c.contents(place(at+"/requestBody", described.RequestBody.Ref), described.RequestBody.Value.Content)}
		}
		for status, response := range described.Responses.Map() {
			code, _ := strconv.Atoi(status) // the document's check has read it
			o.answers[code] = c.answer(place(at+"/responses/"+status, response.Ref), response.Value)
		}
		r.operations[method] = o
		also, _ := described.Extensions["x-coatcheck-also"].(map[string]any)
		for method, role := range also {
			alike := *o
			alike.role = fmt.Sprint(role)
			r.operations[method] = &alike
		}
	}
	return r
}

func (c *Contract) parameters(at string, refs openapi3.Parameters) (list []parameter) {
	for i, ref := range refs {
		p := ref.Value
		list = append(list, parameter{p.Name, p.In, p.Required,
			c.value(place(fmt.Sprintf("%s/parameters/%d", at, i), ref.Ref)+"/schema", p.Schema.Ref, p.Schema.Value)})
	}
	return list
}

func (c *Contract) answer(at string, response *openapi3.Response) *answer {
	a := &answer{headers: map[string]header{}, contents: c.contents(at, response.Content)}
	for name, ref := range response.Headers {
		place := place(at+"/headers/"+escaped(name), ref.Ref)
		a.headers[http.CanonicalHeaderKey(name)] = header{ref.Value.Required,
			c.value(place+"/schema", ref.Value.Schema.Ref, ref.Value.Schema.Value)}
	}
	return a
}

func (c *Contract) contents(at string, content openapi3.Content) map[string]*value {
	values := map[string]*value{}
	for media, described := range content {
		// The schema's own place, not that of its $ref: members may stand beside it.
		values[media] = c.value(at+"/content/"+escaped(media)+"/schema", "", described.Schema.Value)
	}
	return values
}

func (c *Contract) value(at, ref string, schema *openapi3.Schema) *value {
	return &value{place(at, ref), schema, &c.schemas}
}

// place is where something stands: here, or where a reference says.
func place(here, ref string) string {
	if ref == "" {
		return here
	}
	return strings.TrimPrefix(ref, "#")
}

// escaped writes a name as a part of a JSON pointer in a fragment.
func escaped(name string) string {
	return strings.ReplaceAll(url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(name)), "+", "%2B")
}

// schemas are those of the document, compiled by JSON Schema 2020-12 when they are first needed.
// kin-openapi would compile them for each value anew.
type schemas struct {
	mu       sync.Mutex
	compiler *jsonschema.Compiler
	ready    sync.Map // by JSON pointer
}

const documentName = "openapi:document"

func (s *schemas) read(text []byte) error {
	var document any
	if err := yaml.Unmarshal(text, &document); err != nil {
		return fmt.Errorf("apitest: %w", err)
	}
	inJSON, err := json.Marshal(document)
	if err != nil {
		return fmt.Errorf("apitest: %w", err)
	}
	// 64-bit numbers stay what they are
	exact, err := jsonschema.UnmarshalJSON(bytes.NewReader(inJSON))
	if err != nil {
		return fmt.Errorf("apitest: %w", err)
	}
	s.compiler = jsonschema.NewCompiler()
	s.compiler.DefaultDraft(jsonschema.Draft2020)
	s.compiler.AssertFormat()
	if err := s.compiler.AddResource(documentName, exact); err != nil {
		return fmt.Errorf("apitest: %w", err)
	}
	return nil
}

func (s *schemas) at(pointer string) (*jsonschema.Schema, error) {
	if ready, ok := s.ready.Load(pointer); ok {
		return ready.(*jsonschema.Schema), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	schema, err := s.compiler.Compile(documentName + "#" + pointer)
	if err != nil {
		return nil, fmt.Errorf("apitest: %w", err)
	}
	s.ready.Store(pointer, schema)
	return schema, nil
}
