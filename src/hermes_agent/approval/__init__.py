"""Approval of tool calls: the policy file, dangers, questions to a person, and who may answer."""
