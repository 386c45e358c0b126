// Evaluates the health checks in manifests/gitops as Argo CD and Flux do: Lua with gopher-lua, CEL with cel-go.
//
// Each line of the standard input is a JSON object with the field "object", and either "lua" or "cel". Each line of the
// standard output is the result as JSON, or an object with the field "error".
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"github.com/google/cel-go/cel"
	lua "github.com/yuin/gopher-lua"
)

type task struct {
	Lua    string         `json:"lua"`
	CEL    string         `json:"cel"`
	Object map[string]any `json:"object"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		result, err := run(lines.Bytes())
		if err != nil {
			result = map[string]string{"error": err.Error()}
		}
		text, _ := json.Marshal(result)
		fmt.Println(string(text))
	}
}

func run(line []byte) (any, error) {
	var work task
	if err := json.Unmarshal(line, &work); err != nil {
		return nil, err
	}
	if work.CEL != "" {
		return evaluateCEL(work.CEL, work.Object)
	}
	return evaluateLua(work.Lua, work.Object)
}

func evaluateLua(script string, object map[string]any) (any, error) {
	state := lua.NewState()
	defer state.Close()
	state.SetGlobal("obj", toLua(state, object))
	if err := state.DoString(script); err != nil {
		return nil, err
	}
	table, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return nil, fmt.Errorf("the script returns no table")
	}
	return map[string]string{
		"status":  table.RawGetString("status").String(),
		"message": table.RawGetString("message").String(),
	}, nil
}

func toLua(state *lua.LState, value any) lua.LValue {
	switch each := value.(type) {
	case map[string]any:
		table := state.NewTable()
		for name, field := range each {
			table.RawSetString(name, toLua(state, field))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, item := range each {
			table.Append(toLua(state, item))
		}
		return table
	case string:
		return lua.LString(each)
	case float64:
		return lua.LNumber(each)
	case bool:
		return lua.LBool(each)
	default:
		return lua.LNil
	}
}

func evaluateCEL(expression string, object map[string]any) (any, error) {
	options := []cel.EnvOption{}
	for _, name := range []string{"apiVersion", "kind", "metadata", "spec", "status"} {
		options = append(options, cel.Variable(name, cel.DynType))
	}
	environment, err := cel.NewEnv(options...)
	if err != nil {
		return nil, err
	}
	compiled, issues := environment.Compile(expression)
	if issues.Err() != nil {
		return nil, issues.Err()
	}
	program, err := environment.Program(compiled)
	if err != nil {
		return nil, err
	}
	result, _, err := program.Eval(object)
	if err != nil {
		return nil, err
	}
	return result.Value(), nil
}
