// The language server reports our verifiers' sentences while one types.
// RUN: flash-lsp-server --lit-test < %s | FileCheck %s
{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"processId":1,"rootPath":"","capabilities":{},"trace":"off"}}
// -----
{"jsonrpc":"2.0","method":"textDocument/didOpen","params":{"textDocument":{"uri":"test:///f.mlir","languageId":"mlir","version":1,"text":"func.func @f() { flash.nothing }"}}}
// CHECK: "method": "textDocument/publishDiagnostics"
// CHECK: flash.nothing
// -----
{"jsonrpc":"2.0","id":1,"method":"shutdown"}
// -----
{"jsonrpc":"2.0","method":"exit"}
