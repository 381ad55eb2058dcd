"""The file formats: FlatBuffer schemas, generated code, and the facts about bytes that no schema holds."""
