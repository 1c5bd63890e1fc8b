//! Routes as an `OpenAPI` document.

use serde_json::Value;
use utoipa::openapi::path::{OperationBuilder, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, HttpMethod, InfoBuilder, ObjectBuilder, OpenApiBuilder, PathItem,
    PathsBuilder, Required, ResponseBuilder, SecurityRequirement, Type,
};

use crate::routes::{Known, Takes};

/// What a key is called in the document.
const KEY: &str = "key";

/// The document about these routes, as JSON.
pub fn document(routes: &[Known]) -> String {
    let info = InfoBuilder::new()
        .title("Ropeway")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "OpenAI, Anthropic and Ollama APIs, plain generation and operation. Unknown fields are ignored.",
        ))
        .build();
    let mut components = ComponentsBuilder::new()
        .security_scheme(KEY, SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    let mut paths = PathsBuilder::new();
    for route in routes {
        paths = paths.path(route.path.replace("{*", "{"), item(route));
        for (name, part) in route.takes.iter().flat_map(|takes| &takes.parts) {
            components = components.schema(name, part.clone());
        }
    }
    let keyless = SecurityRequirement::default();
    OpenApiBuilder::new()
        .info(info)
        .paths(paths)
        .components(Some(components.build()))
        .security(Some([keyless, SecurityRequirement::new(KEY, [""; 0])]))
        .build()
        .to_json()
        .expect("plain data")
}

fn item(route: &Known) -> PathItem {
    let method = match route.method {
        "POST" => HttpMethod::Post,
        "DELETE" => HttpMethod::Delete,
        _ => HttpMethod::Get,
    };
    let operation = OperationBuilder::new()
        .tag(route.api)
        .summary(Some(route.summary))
        .description(route.needs.map(|right| format!("Needs the right `{}`.", right.name())))
        .request_body(route.takes.as_ref().map(body))
        .response("200", ResponseBuilder::new().description("The answer."))
        .response("default", ResponseBuilder::new().description("What is wrong, in this API's shape."));
    let operation = parameters(route.path).fold(operation, |operation, name| {
        let text = ObjectBuilder::new().schema_type(Type::String);
        let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Path);
        operation.parameter(parameter.required(Required::True).schema(Some(text)))
    });
    let operation = route.query.iter().fold(operation, |operation, name| {
        let text = ObjectBuilder::new().schema_type(Type::String);
        let parameter = ParameterBuilder::new().name(*name).parameter_in(ParameterIn::Query);
        operation.parameter(parameter.required(Required::False).schema(Some(text)))
    });
    PathItem::new(method, operation)
}

/// The names that stand for anything in a path.
fn parameters(path: &str) -> impl Iterator<Item = &str> {
    path.split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| name.trim_start_matches('*'))
}

fn body(takes: &Takes) -> RequestBody {
    let example: Option<Value> = serde_json::from_str(takes.example).ok();
    let content = ContentBuilder::new().schema(Some(takes.schema.clone())).example(example).build();
    RequestBodyBuilder::new().content("application/json", content).required(Some(Required::True)).build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app;

    #[test]
    fn every_route_says_what_it_is_for_and_what_it_takes() {
        let routes = app::routes();
        let document: Value = serde_json::from_str(&document(routes.known())).unwrap();
        for route in routes.known() {
            let path = route.path.replace("{*", "{");
            let told = &document["paths"][&path][route.method.to_lowercase()];
            assert!(told["summary"].as_str().is_some_and(|text| text.ends_with('.')), "{path}");
            assert!(told["tags"][0].as_str().is_some_and(|tag| !tag.is_empty()), "{path}");
            let is_sent = route.method == "POST" || path == "/api/delete";
            let starts = ["/api/event_logging", "/api/blobs"].iter().any(|start| path.starts_with(start));
            let is_no_json = starts || path.ends_with("/cancel");
            let content = &told["requestBody"]["content"]["application/json"];
            assert_eq!(content["schema"].is_object(), is_sent && !is_no_json, "{path}");
            assert_eq!(content["example"].is_object(), content["schema"].is_object(), "{path}");
        }
    }

    #[test]
    fn the_fields_of_speculation_are_told() {
        let text = document(app::routes().known());
        for field in ["prediction", "speculation", "use_speculative", "speculation_depth"] {
            assert!(text.contains(&format!("\"{field}\":{{")), "{field}");
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let text = document(app::routes().known());
        let document: Value = serde_json::from_str(&text).unwrap();
        for reference in text.split("\"$ref\":\"#").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(document.pointer(reference).is_some(), "{reference}");
        }
        assert!(text.contains("\"$ref\""));
    }
}
