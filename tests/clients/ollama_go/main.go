// Ollama's own Go client against a running server: every call that its command line makes, in the order of a model's life.
//
//	OLLAMA_HOST=127.0.0.1:11434 go run . MODEL EMBEDDER FILE.gguf
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"time"

	"github.com/ollama/ollama/api"
)

var ctx = context.Background()

// done tells how a call went, and ends at the first one that failed.
func done(what string, err error) {
	if err != nil {
		fmt.Printf("FAILED  %s: %v\n", what, err)
		os.Exit(1)
	}
	fmt.Printf("ok      %s\n", what)
}

// holds fails a check that is not so.
func holds(so bool, what string) {
	if !so {
		done(what, fmt.Errorf("it does not hold"))
	}
}

func main() {
	model, embedder, path := os.Args[1], os.Args[2], os.Args[3]
	client, err := api.ClientFromEnvironment()
	done("client", err)
	done("heartbeat", client.Heartbeat(ctx))
	_, err = client.Version(ctx)
	done("version", err)
	look(client, model)
	ask(client, model)
	derive(client, model)
	embed(client, embedder)
	send(client, path)
	leave(client, model)
}

// look lists and shows models, loaded or not; the command line slices digests.
func look(client *api.Client, model string) {
	list, err := client.List(ctx)
	done("list", err)
	for _, row := range list.Models {
		holds(len(row.Digest[:12]) == 12 && !row.ModifiedAt.IsZero(), "a row of the list")
	}
	shown, err := client.Show(ctx, &api.ShowRequest{Name: model})
	done("show", err)
	holds(shown.ModelInfo["general.architecture"] != nil && len(shown.Capabilities) > 0, "what is shown")
	shown, err = client.Show(ctx, &api.ShowRequest{Model: model, Verbose: true})
	done("show --verbose", err)
	holds(len(shown.Tensors) > 0, "tensors")
	done("load", client.Generate(ctx, &api.GenerateRequest{Model: model}, func(answer api.GenerateResponse) error {
		holds(answer.DoneReason == "load", "loading is told")
		return nil
	}))
	running, err := client.ListRunning(ctx)
	done("ps", err)
	for _, row := range running.Models {
		holds(len(row.Digest[:12]) == 12 && time.Until(row.ExpiresAt) > 0 && row.ContextLength > 0, "a row of ps")
	}
}

// ask chats and generates, with log-probabilities and from an earlier context.
func ask(client *api.Client, model string) {
	options := map[string]any{"num_predict": 6, "num_ctx": 1 << 20, "num_gpu": 1}
	logprobs := 0
	done("chat", client.Chat(ctx, &api.ChatRequest{
		Model: model, Messages: []api.Message{{Role: "user", Content: "Name three colours."}}, Options: options, Logprobs: true, TopLogprobs: 2,
	}, func(answer api.ChatResponse) error {
		logprobs += len(answer.Logprobs)
		return nil
	}))
	holds(logprobs == 6, "a log-probability per token")
	var last api.GenerateResponse
	keep := func(answer api.GenerateResponse) error {
		last = answer
		return nil
	}
	done("generate", client.Generate(ctx, &api.GenerateRequest{Model: model, Prompt: "Hi", Options: options}, keep))
	holds(last.Done && last.EvalCount == 6 && last.EvalDuration > 0, "figures of an answer")
	again := &api.GenerateRequest{Model: model, Prompt: "Go on.", Context: last.Context, Options: options}
	before := last.PromptEvalCount
	done("generate from a context", client.Generate(ctx, again, keep))
	holds(last.PromptEvalCount > before, "the context is part of the prompt")
}

// derive makes a model of another, asks, copies and deletes it.
func derive(client *api.Client, model string) {
	request := &api.CreateRequest{
		Model: "mario-go", From: model, System: "You are Mario.", Parameters: map[string]any{"num_predict": 5, "stop": []string{"Luigi"}},
	}
	status := ""
	done("create", client.Create(ctx, request, func(line api.ProgressResponse) error {
		status = line.Status
		return nil
	}))
	holds(status == "success", "the last status")
	done("chat with it", client.Chat(ctx, &api.ChatRequest{
		Model: "mario-go", Messages: []api.Message{{Role: "user", Content: "Who are you?"}},
	}, func(answer api.ChatResponse) error {
		holds(!answer.Done || answer.EvalCount <= 5, "its options")
		return nil
	}))
	shown, err := client.Show(ctx, &api.ShowRequest{Model: "mario-go"})
	done("show it", err)
	holds(shown.System == "You are Mario." && shown.Details.ParentModel != "", "its words")
	done("copy", client.Copy(ctx, &api.CopyRequest{Source: "mario-go", Destination: "luigi-go:latest"}))
	done("delete", client.Delete(ctx, &api.DeleteRequest{Name: "mario-go"}))
	done("delete the copy", client.Delete(ctx, &api.DeleteRequest{Model: "luigi-go"}))
}

func embed(client *api.Client, embedder string) {
	vectors, err := client.Embed(ctx, &api.EmbedRequest{Model: embedder, Input: []string{"a", "b"}})
	done("embed", err)
	old, err := client.Embeddings(ctx, &api.EmbeddingRequest{Model: embedder, Prompt: "a"})
	done("embeddings", err)
	holds(len(vectors.Embeddings) == 2 && len(vectors.Embeddings[0]) == len(old.Embedding), "vectors")
}

// send makes a model of a file.
func send(client *api.Client, path string) {
	file, err := os.ReadFile(path)
	done("read", err)
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(file))
	done("send a file", client.CreateBlob(ctx, digest, bytes.NewReader(file)))
	request := &api.CreateRequest{Model: "sent-go", Files: map[string]string{"model.gguf": digest}}
	done("create from it", client.Create(ctx, request, func(api.ProgressResponse) error { return nil }))
	chat := &api.ChatRequest{
		Model: "sent-go", Messages: []api.Message{{Role: "user", Content: "Hi"}}, Options: map[string]any{"num_predict": 2},
	}
	done("chat with it", client.Chat(ctx, chat, func(api.ChatResponse) error { return nil }))
	stop(client, "sent-go")
	done("delete it", client.Delete(ctx, &api.DeleteRequest{Name: "sent-go"}))
}

// leave unloads a model, twice, and is turned down where it should be.
func leave(client *api.Client, model string) {
	nothing := func(api.ProgressResponse) error { return nil }
	holds(client.Push(ctx, &api.PushRequest{Name: model}, nothing) != nil, "a push is turned down")
	holds(client.Pull(ctx, &api.PullRequest{Name: "no-such-model"}, nothing) != nil, "an unknown name is turned down")
	done("pull what is here", client.Pull(ctx, &api.PullRequest{Name: model}, nothing))
	stop(client, model)
	stop(client, model)
}

func stop(client *api.Client, model string) {
	request := &api.GenerateRequest{Model: model, KeepAlive: &api.Duration{}}
	done("stop "+model, client.Generate(ctx, request, func(answer api.GenerateResponse) error {
		holds(answer.DoneReason == "unload", "unloading is told")
		return nil
	}))
}
